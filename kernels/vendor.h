/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_H
#define GSN_VENDOR_H
/* The vendor that the gpu_*.c files are compiled for; the build defines one of these. */
#if defined(GSN_VENDOR_CUDA)
#include "kernels/vendor_cuda.h"
#elif defined(GSN_VENDOR_HIP)
#include "kernels/vendor_hip.h"
#else
#error "define GSN_VENDOR_CUDA or GSN_VENDOR_HIP"
#endif
#endif
