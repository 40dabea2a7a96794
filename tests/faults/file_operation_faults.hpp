// What the two halves of the preloaded library know of each other.
#pragma once

/// Reads the variables FILE_FAULT… again, and counts from 0: in a process that was forked.
void watch_file_operations_anew();
