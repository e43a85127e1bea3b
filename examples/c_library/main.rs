// Read a digit: rustc main.rs -L . -l dylib:+verbatim=digits.so -C link-arg=-Wl,-rpath,'$ORIGIN' -o read_digit
use std::ffi::{c_char, c_int, c_void, CStr};

extern "C" {
    fn digits_run(
        inputs: *const *const c_void,
        outputs: *const *mut c_void,
        sizes: *const i64,
        workspace: *mut c_void,
        bytes: usize,
    ) -> c_int;
    fn digits_error(code: i32) -> *const c_char;
    fn digits_level() -> *const c_char;
}

const PICTURE: [&str; 8] = [
    "..####..", ".##..##.", ".#...##.", ".....##.", "....##..", "..###...", ".####...", ".######.",
];

fn scores(picture: &[f32; 64]) -> Result<[f32; 10], String> {
    let mut scores = [0f32; 10];
    let inputs = [picture.as_ptr().cast::<c_void>()];
    let outputs = [scores.as_mut_ptr().cast::<c_void>()];
    let sizes = [1i64];
    // Both arrays live through the call and have the sizes that are told.
    unsafe {
        let code = digits_run(inputs.as_ptr(), outputs.as_ptr(), sizes.as_ptr(), std::ptr::null_mut(), 0);
        if code != 0 {
            return Err(CStr::from_ptr(digits_error(code)).to_string_lossy().into_owned());
        }
    }
    Ok(scores)
}

fn main() -> Result<(), String> {
    let mut picture = [0f32; 64];
    for (row, line) in PICTURE.iter().enumerate() {
        for (column, mark) in line.bytes().enumerate() {
            picture[8 * row + column] = if mark == b'#' { 1.0 } else { 0.0 };
        }
    }
    let scores = scores(&picture)?;
    let best = (0..10).fold(0, |best, at| if scores[at] > scores[best] { at } else { best });
    println!("{}", scores.map(|score| format!("{score:.4}")).join(" "));
    let level = unsafe { CStr::from_ptr(digits_level()) };
    println!("This is a {best}, says {}.", level.to_string_lossy());
    Ok(())
}
