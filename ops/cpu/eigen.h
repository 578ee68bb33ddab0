#pragma once

// Eigen with our settings; include it instead of Eigen's headers, before anything that does.

// The threads are those of parallel_for.
#define EIGEN_DONT_PARALLELIZE
#define EIGEN_MPL2_ONLY
// Products keep copies of blocks of their operands on the stack up to this size: nothing that may
// be replayed allocates.
#define EIGEN_STACK_ALLOCATION_LIMIT (4 << 20)

// GCC 12 takes the deliberately undefined operand of some AVX-512 intrinsics for a mistake.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <Eigen/Core>
#include <unsupported/Eigen/SpecialFunctions>
#pragma GCC diagnostic pop
