"""Hold the package's context managers to a list that someone has read."""

import ast

import package_tree


def managers():
    """The (file, class or function) of each context manager of the package."""
    for name, tree in package_tree.trees(["__enter__", "contextmanager", "asynccontextmanager"]):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and any(
                getattr(n, "name", "") == "__enter__" for n in node.body
            ):
                yield name, node.name
            elif isinstance(node, ast.FunctionDef) and any("contextmanager" in ast.unparse(d)
                                                           for d in node.decorator_list):  # fmt: skip
                yield name, node.name


REVIEWED = {
    ("runtime/modes.py", "_Mode"): "tests/runtime/test_interrupts.py",
    ("runtime/modes.py", "no_grad"): "tests/runtime/test_interrupts.py",
    ("runtime/modes.py", "set_grad_enabled"): "tests/runtime/test_interrupts.py",
    ("runtime/packing.py", "saved_tensors_hooks"): "a _Mode, which asks first whether it may be opened",
    ("runtime/packing.py", "disable_saved_tensors_hooks"): "a _Mode, which asks first",
    ("runtime/packing.py", "allow_mutation_on_saved_tensors"): "a _Mode, which returns itself",
    ("runtime/overriding.py", "TorchFunctionMode"): "a _Mode, held weakly by the state that it changes",
    ("runtime/checkpoints/classes.py", "safe_globals"): "held weakly by the state that it changes",
    ("runtime/levels.py", "opened"): "tests/runtime/test_interrupts.py",
    ("runtime/forward.py", "dual_level"): "tests/runtime/test_interrupts.py",
    ("ir/dims.py", "conditions"): "tests/runtime/test_interrupts.py",
    ("ir/dims.py", "limits"): "as `conditions`: held weakly by the thread's open blocks",
    ("ir/dims.py", "hints"): "as `conditions`: held weakly by the thread's open blocks",
    ("ir/dims.py", "facts"): "as `conditions`: held weakly by the thread's open blocks",
    ("passes/llvm/sized.py", "for_sizes"): "blocks of `hints`, `limits` and `facts`",
    ("fx/graph.py", "_Insertion"): "put back in its exit; nothing else is held",
    ("fx/graph.py", "restoring"): "put back in its finally; nothing else is held",
    ("jit/artifact.py", "known"): "blocks of `hints`, `limits` and `facts`",
    ("ir/meeting.py", "begun_anew"): "put back in its finally; an interrupt ends the ranks",
    ("distributed/arrays.py", "own_numbers"): "the state of a recorder, which an interrupt ends",
    ("distributed/data_parallel.py", "no_sync"): "put back in its finally; nothing else is held",
    ("distributed/nccl.py", "group"): "NCCL's group is ended in its finally; nothing else is held",
    ("distributed/fsdp/wrapper.py", "no_sync"): "put back in its finally; nothing else is held",
    ("distributed/fsdp/wrapper.py", "state_dict_type"): "put back in its finally; nothing else is held",
    ("distributed/fsdp/wrapper.py", "summon_full_params"): "an interrupt ends the ranks",
    ("distributed/fsdp/wrap.py", "enable_wrap"): "put back in its finally; nothing else is held",
    ("distributed/tensor/experimental.py", "implicit_replication"): "put back in its finally",
    ("distributed/tensor/whole.py", "partitioned"): "put back in its finally",
    ("distributed/tensor/parallel/vocabulary_loss.py", "loss_parallel"): "put back in its finally",
    ("distributed/algorithms/join.py", "Join"): "put back in its __exit__; an interrupt ends the ranks",
    ("serving/serve_worker.py", "capture_signals"): "there is no state",
    ("jit/loaded.py", "blamed"): "there is no state",
    ("jit/lamina_model_cuda.py", "current"): "the thread's context of CUDA, put back in its finally",
    ("jit/lamina_model_cuda.py", "queued"): "there is no state: it waits for the stream at its end",
    ("jit/symbolic.py", "walk"): "the state of a recorder, which an interrupt ends",
    ("jit/symbolic.py", "beside_walk"): "the state of a recorder, which an interrupt ends",
    ("runtime/memory.py", "giving_back"): "what is kept for later calls, by which nothing is computed",
    ("jit/symbolic.py", "_occupied"): "the state of a recorder, which an interrupt ends",
    (
        "jit/symbolic.py",
        "_without_effects",
    ): "the state of a recorder; generators are put back in its finally",
    ("ir/graph.py", "Builder"): "tests/runtime/test_interrupts.py",
    (
        "runtime/generator.py",
        "fork_rng",
    ): "tests/runtime/test_interrupts.py; it changes nothing when it is entered",
    ("facade/streams.py", "Stream"): "a StreamContext, which it holds",
    ("facade/streams.py", "StreamContext"): "names of the CPU, by which nothing is computed",
    ("facade/streams.py", "device"): "names of the CPU, by which nothing is computed",
    ("facade/backends.py", "flags"): "switches that change nothing computed; set within its try",
    ("facade/compiler.py", "patch"): "switches that change nothing computed; set within its try",
    ("facade/switches.py", "_noted"): "there is no state",
    ("jit/torchscript.py", "optimized_execution"): "there is no state",
    ("facade/backends.py", "sdp_kernel"): "switches that change nothing computed; set within its try",
    ("profiler/sessions.py", "record_function"): "what is open ends with what it is in",
    (
        "facade/flop_counter.py",
        "FlopCounterMode",
    ): "on an ExitStack of its own until it is open",
    ("profiler/sessions.py", "profile"): "a _Mode, which it holds; tests/profiler/test_profiles.py",
    ("profiler/sessions.py", "emit_nvtx"): "there is no state",
    ("facade/benchmark.py", "_on_threads"): "threads are given back within its try",
    ("facade/amp.py", "autocast"): "tests/runtime/test_interrupts.py; there is no state",
    ("distributed/checkpoint/disk.py", "Opened"): "entering changes nothing; a file for reading",
    ("ir/own_files.py", "replacing"): "tests/runtime/test_own_form.py",
    ("runtime/compiler.py", "Compiler"): "entering changes nothing; helpers end with their input",
    ("jit/observe/sizes.py", "without_marks"): "marks are taken and put back within its try",
    ("jit/dynamic.py", "marked"): "what `without_marks` puts back",
    ("passes/llvm/binding.py", "_checked"): "LLVM runs where no interrupt comes (binding.apart)",
    ("passes/llvm/helper.py", "asked_options"): "LLVM runs where no interrupt comes (binding.apart)",
    ("jit/targets.py", "compiler"): "there is no state but the Compiler's",
    ("runtime/triton_compiler.py", "Compiler"): "entering changes nothing; helpers end with their input",
    ("runtime/methods.py", "Handle"): "entering changes nothing; the hook was hung before",
    ("runtime/methods.py", "RemovableHandle"): "entering changes nothing; the hook was hung before",
    ("nn/utils/parametrize.py", "cached"): "an interrupt comes where it yields, within its try",
    ("nn/sdp_kernels.py", "sdpa_kernel"): "there is no state",
    ("runtime/cuda/executable.py", "_named"): "there is no state",
    ("passes/llvm/expressions.py", "vectors_along"): "the state of an emitter, which an interrupt ends",
    ("passes/llvm/ranges.py", "given"): "the state of an emitter, which an interrupt ends",
    ("passes/llvm/writer.py", "scope"): "the state of an emitter, which an interrupt ends",
    ("ir/kernel/text.py", "_at"): "there is no state",
    ("passes/triton/emit.py", "scope"): "the state of an emitter, which an interrupt ends",
    ("passes/triton/emit.py", "loop"): "the state of an emitter, which an interrupt ends",
    ("passes/triton/emit.py", "nested"): "the state of an emitter, which an interrupt ends",
}


def test_every_context_manager_was_reviewed():
    assert set(managers()) == set(REVIEWED)
