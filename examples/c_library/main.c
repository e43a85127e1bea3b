/* Read a digit: gcc -std=c99 main.c digits.so -Wl,-rpath,'$ORIGIN' -o read_digit */
#include "digits.h"

#include <stdio.h>
#include <stdlib.h>

static const char *PICTURE[8] = {
    "..####..",
    ".##..##.",
    ".#...##.",
    ".....##.",
    "....##..",
    "..###...",
    ".####...",
    ".######.",
};

static void check(int code) {
    if (code != DIGITS_OK) {
        fprintf(stderr, "digits: %s\n", digits_error(code));
        exit(1);
    }
}

int main(void) {
    float picture[64], scores[DIGITS_OUTPUT0_DIM1];
    int at, best = 0;

    for (at = 0; at < 64; at++) {
        picture[at] = PICTURE[at / 8][at % 8] == '#' ? 1.0f : 0.0f;
    }
    check(digits_call(picture, scores, 1));
    for (at = 1; at < DIGITS_OUTPUT0_DIM1; at++) {
        if (scores[at] > scores[best]) best = at;
    }
    for (at = 0; at < DIGITS_OUTPUT0_DIM1; at++) {
        printf("%.4f%c", scores[at], at + 1 < DIGITS_OUTPUT0_DIM1 ? ' ' : '\n');
    }
    printf("This is a %d, says %s.\n", best, digits_level());
    return 0;
}
