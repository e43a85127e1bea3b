// Read a digit: CGO_LDFLAGS="$PWD/digits.so -Wl,-rpath,$PWD" go build -o read_digit main.go
package main

// #include "digits.h"
import "C"

import (
	"fmt"
	"os"
)

var picture = [8]string{
	"..####..", ".##..##.", ".#...##.", ".....##.", "....##..", "..###...", ".####...", ".######.",
}

func main() {
	var pixels [64]C.float
	var scores [C.DIGITS_OUTPUT0_DIM1]C.float
	for at := range pixels {
		if picture[at/8][at%8] == '#' {
			pixels[at] = 1
		}
	}
	if code := C.digits_call(&pixels[0], &scores[0], 1); code != C.DIGITS_OK {
		fmt.Fprintln(os.Stderr, "digits:", C.GoString(C.digits_error(code)))
		os.Exit(1)
	}
	best := 0
	for at, score := range scores {
		if score > scores[best] {
			best = at
		}
		end := " "
		if at == len(scores)-1 {
			end = "\n"
		}
		fmt.Printf("%.4f%s", score, end)
	}
	fmt.Printf("This is a %d, says %s.\n", best, C.GoString(C.digits_level()))
}
