/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_DEVICE_H
#define GSN_VENDOR_DEVICE_H
/* The vendor that the kernels are compiled for; the build defines one of these. */
#if defined(GSN_VENDOR_CUDA)
#include "kernels/vendor_cuda_device.h"
#elif defined(GSN_VENDOR_HIP)
#include "kernels/vendor_hip_device.h"
#else
#error "define GSN_VENDOR_CUDA or GSN_VENDOR_HIP"
#endif
#endif
