"""Starting ranks and watching them: the command `launch`, `multiprocessing.spawn`, the tale of failures.

launch, spawn           what users call
job                     one run of all ranks, by MPI's launcher (launchers)
watch_rank              the process beside each rank, of the standard library alone: how it fares and ends
rank_main               the rank itself: knows its place, runs the program
ray_ranks, ray_train_backend   ranks that Ray starts
frames, pmi_line        what goes through mpiexec's output, and between it and a rank
reaping, segments       what ranks leave behind
console, failures       what people read
"""

if not __name__.startswith("lamina."):  # found in the repository's root: a second copy under another name
    raise ImportError(
        f"{__name__} is a folder of Lamina's repository: write import lamina.distributed.launching"
    )
