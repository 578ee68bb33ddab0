#pragma once

// For functions that kernels call too.
#if defined(__CUDACC__)
#define CAPSTAN_HOST_DEVICE __host__ __device__
#else
#define CAPSTAN_HOST_DEVICE
#endif
