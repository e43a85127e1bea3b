"""What a call of a C library costs, and how soon a program that begins has its first result.

    python benchmarks/c_library.py [--rounds 200] [--write]

The program is C, built with gcc -O2.  A call: the least of many rounds of 1000, of a network of 4 x 4 and of
the digits' network, with a workspace and without.  The start: from `execve` to the first result, a program
that executes itself and is told when; the least and the median.  --write puts the table into
benchmarks/results/.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import tempfile
from datetime import date
from pathlib import Path

from contest import processor

import lamina
from lamina import nn

RESULTS = Path(__file__).parent / "results"
PROGRAM = r"""
#define _POSIX_C_SOURCE 200809L
#include "NAME.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static _Alignas(64) float x[NAME_INPUT0_ELEMENTS], y[NAME_OUTPUT0_ELEMENTS];
static _Alignas(64) char room[1 << 20];

int main(int count, char **words) {
    const void *inputs[1] = {x};
    void *outputs[1] = {y};
    double best[2] = {1e18, 1e18};
    int rounds, n, kind;

    if (count == 2) { /* begin again, and say when */
        char text[40];
        snprintf(text, sizeof text, "%.0f", now());
        execl(words[0], words[0], words[1], text, (char *)NULL);
        return 1;
    }
    if (count == 3) {
        int code = NAME_run(inputs, outputs, NULL, NULL, 0);
        double end = now();
        printf("%.0f\n", end - atof(words[2]));
        return code;
    }
    rounds = atoi(words[3]);
    for (n = 0; n < rounds; n++) {
        for (kind = 0; kind < 2; kind++) {
            double start = now(), took;
            int k;
            for (k = 0; k < 1000; k++) {
                if (NAME_run(inputs, outputs, NULL, kind ? room : NULL, kind ? sizeof room : 0)) return 1;
            }
            took = (now() - start) / 1000;
            if (took < best[kind]) best[kind] = took;
        }
    }
    printf("%.1f %.1f\n", best[0], best[1]);
    return 0;
}
"""
NETWORKS = {
    "a network of 4 x 4": (lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (4, 4)),
    "the digits' network": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)
        ),
        (1, 1, 8, 8),
    ),
}


def built(folder: Path, name: str, model: nn.Module, shape: tuple[int, ...]) -> Path:
    """A program with a model's library."""
    lamina.jit.export(model.eval(), folder / f"{name}.so", lamina.zeros(*shape))
    source = folder / f"{name}.c"
    text = PROGRAM.replace("NAME.h", f"{name}.h").replace("NAME_run", f"{name}_run")
    source.write_text(text.replace("NAME_", f"{name.upper()}_"))
    program = folder / name
    link = (f"{name}.so", "-Wl,-rpath,$ORIGIN", "-o", program)
    subprocess.run(["gcc", "-std=c11", "-O2", source, *link], cwd=folder, check=True)
    return program


def said(*command: str | Path) -> list[float]:
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def table(rounds: int) -> str:
    lines = [
        "C libraries: calls, and the start of a program.",
        f"{processor()}, {platform.system()} {platform.release()}; one thread; {date.today()}",
        "",
        f"{'':24}{'a call':>12}{'with a workspace':>20}{'start, least':>16}{'median':>10}",
    ]
    with tempfile.TemporaryDirectory() as at:
        for number, (title, (make, shape)) in enumerate(NETWORKS.items()):
            lamina.manual_seed(0)
            program = built(Path(at), f"net{number}", make(), shape)
            own, given = said(program, "", "", str(rounds))
            starts = [said(program, "")[0] for _ in range(rounds)]
            least, median = min(starts) / 1e6, statistics.median(starts) / 1e6
            lines.append(f"{title:24}{own:>9.0f} ns{given:>17.0f} ns{least:>13.2f} ms{median:>7.2f} ms")
    return "\n".join([*lines, ""])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    text = table(options.rounds)
    print(text)
    if options.write:
        (RESULTS / "c_library.txt").write_text(text)


if __name__ == "__main__":
    main()
