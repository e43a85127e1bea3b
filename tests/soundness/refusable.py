"""Programs that can only be refused: compiled code may not serve them, or only by guessing.

They are judged like all others, and a summary counts them apart.  By name, why.
"""

OUTSIDE = "asks the world outside: clocks, chance, files, the system"
STACK = "looks at frames, names of variables, or runs text"
ADDRESS = "reads addresses: id, the default text or hash of objects"
IN_C = "has C code look into objects of the user's"
CACHE = "keeps results inside C code (functools.cache)"
USED_UP = "goes on with an iterator from outside, whose place can't be read without moving it"
ESCAPES = "hands out a generator that goes on later"
ARRAYS = "writes NumPy arrays that were there, or memory of tensors through them"
THREAD = "reads state of the thread, or starts one"
SEEDS = "sets or reads the state of a generator of random numbers"
LEAVES = "leaves another mode behind"
SHARED = "writes memory that two of its tensors share, in some of its calls"
DIES = "tells when an object that it makes dies"
RAISED = "keeps an error that was raised, whose frames no other run has, or one whose fields can't be given"
VIEWS = "hands out NumPy arrays that share memory"
HOLE = "an attribute of a module is set by object.__setattr__, past the module (documented: nn/epoch.py)"

REFUSABLE = {
    "a_captured_array_is_written": ARRAYS,
    "a_captured_generator_of_tensors_runs_dry": USED_UP,
    "a_captured_generator_runs_on": USED_UP,
    "a_cached_function": CACHE,
    "a_clock_in_c": USED_UP,
    "a_clock_that_ticks": USED_UP,
    "a_counter_of_itertools": USED_UP,
    "a_date_is_formatted": OUTSIDE,
    "a_dying_object_speaks": DIES,
    "a_file_is_read": OUTSIDE,
    "a_file_is_written": OUTSIDE,
    "a_forked_stretch": SEEDS,
    "a_format_of_ones_own": ADDRESS,
    "a_generator_is_returned": ESCAPES,
    "a_generator_of_numpy": OUTSIDE,
    "a_generator_of_ones_own_seed": OUTSIDE,
    "a_given_generator_is_used_up": USED_UP,
    "a_global_read_through_globals": STACK,
    "a_hash_of_ones_own_in_a_dict": IN_C,
    "a_list_is_shuffled": OUTSIDE,
    "a_local_of_the_caller": STACK,
    "a_memory_view": IN_C,
    "a_module_of_settings_is_reloaded": STACK,
    "a_new_identifier_each_time": OUTSIDE,
    "a_part_of_a_captured_array_is_returned": VIEWS,
    "a_path_exists_or_not": OUTSIDE,
    "a_stream_is_read_on": OUTSIDE,
    "a_thread_is_started_inside": THREAD,
    "a_thread_local_subclass": THREAD,
    "a_view_is_kept_from_outside": USED_UP,
    "a_weak_reference_to_an_object_made_inside": DIES,
    "an_error_holds_more_than_its_arguments": RAISED,
    "an_error_that_was_raised_is_kept": RAISED,
    "arrays_that_share_memory_are_returned": VIEWS,
    "an_alias_of_a_tensor_is_written": ARRAYS,
    "an_iterator_is_drawn_from_twice": USED_UP,
    "an_iterator_is_shared_with_the_outside": USED_UP,
    "an_object_is_pickled": IN_C,
    "an_attribute_is_set_past_the_module": HOLE,
    "a_captured_tensor_comes_to_overlap_another": SHARED,
    "a_captured_view_of_an_argument": SHARED,
    "an_argument_is_a_captured_tensor": SHARED,
    "an_argument_is_a_view_of_another": SHARED,
    "an_argument_is_a_view_of_the_captured_tensor": SHARED,
    "conversion_by_array_method": IN_C,
    "eval_of_an_expression_that_changes": STACK,
    "gradients_are_left_off": LEAVES,
    "input_from_the_terminal": OUTSIDE,
    "instancecheck_of_ones_own": IN_C,
    "interleaved_views_share_no_element": SHARED,
    "iter_with_a_sentinel": USED_UP,
    "locals_are_read": STACK,
    "numpy_calls_a_python_function": IN_C,
    "numpy_writes_inside": ARRAYS,
    "overlapping_windows_come_later": SHARED,
    "random_numbers_of_numpy": OUTSIDE,
    "random_numbers_of_python": OUTSIDE,
    "the_collector_is_asked": OUTSIDE,
    "the_current_directory": OUTSIDE,
    "the_default_repr_of_an_object": ADDRESS,
    "the_inner_one_refuses": STACK,
    "the_mode_is_left_behind": LEAVES,
    "the_name_of_the_caller": STACK,
    "the_real_clock_goes_on": OUTSIDE,
    "the_seed_is_set_inside": SEEDS,
    "the_state_is_kept_inside": SEEDS,
    "two_numbers_that_are_sometimes_one": ADDRESS,
    "values_of_a_thread": THREAD,
    "views_overlap_or_do_not": SHARED,
}
