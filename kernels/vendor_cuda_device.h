/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_CUDA_DEVICE_H
#define GSN_VENDOR_CUDA_DEVICE_H
/*
 * What the kernels need from the vendor's compiler beyond the common language: shuffles of 32
 * lanes, votes, loads of 16 bytes. Kernels are written for groups of 8 and 32 lanes, whatever the
 * hardware's warp is.
 */
#include <cuda_runtime.h>

#include "kernels/moe_math.h"

#define GSN_KERNEL    static __global__
#define GSN_DEVICE_FN static __device__ __forceinline__

/* Threads of a block, and how many blocks registers must leave room for on a multiprocessor. */
#define GSN_BLOCK_OF(threads)		    __launch_bounds__(threads)
#define GSN_RESIDENT_BLOCKS(threads, count) __launch_bounds__(threads, count)

enum {
	GSN_WARP = 32,
	GSN_ROWS_PER_INPUT = 2, /* that share an input of several tokens: registers allow it */
};

typedef cudaStream_t gpuStream_t;
#define gpuClearError		     cudaGetLastError
#define gpuErrorInvalidConfiguration cudaErrorInvalidConfiguration

/* Blocks of a kernel that a multiprocessor holds at once. */
template <typename KERNEL> static int gpuResidentBlocks(int *ret_count, KERNEL kernel, int threads)
{
	return (int)cudaOccupancyMaxActiveBlocksPerMultiprocessor(ret_count, kernel, threads, 0);
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle_xor(T value, int distance)
{
	return __shfl_xor_sync(0xffffffffu, value, distance);
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle_up(T value, unsigned distance)
{
	return __shfl_up_sync(0xffffffffu, value, distance);
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle(T value, int lane)
{
	return __shfl_sync(0xffffffffu, value, lane);
}

/* Bit i: lane i of the 32 says yes. */
GSN_DEVICE_FN unsigned gsn_ballot(bool yes)
{
	return __ballot_sync(0xffffffffu, yes);
}

GSN_DEVICE_FN void gsn_warp_sync()
{
	__syncwarp();
}

/* 16 bytes that are read once: they need not push others out of the first cache. */
GSN_DEVICE_FN uint4 gsn_load_streamed(const void *p)
{
	uint4 v;

	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p));
	return v;
}

/* 16 bytes that other lanes and warps read as well. */
GSN_DEVICE_FN float4 gsn_load_shared(const float *p)
{
	return __ldg((const float4 *)p);
}

/* The 32 bits of (high, low) from bit `shift` on, shift < 32. */
GSN_DEVICE_FN unsigned gsn_funnel(unsigned low, unsigned high, unsigned shift)
{
	return __funnelshift_r(low, high, shift);
}

/* Four E4M3 codes to float, exactly; a NaN code becomes a NaN. */
GSN_DEVICE_FN void gsn_decode_4_f8_e4m3(unsigned codes, float out[4])
{
#if __CUDA_ARCH__ >= 890
	for (int i = 0; i < 2; i++) {
		unsigned short pair = (unsigned short)(codes >> (16 * i));
		unsigned halves;

		asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(pair));
		asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
			: "=f"(out[2 * i]), "=f"(out[2 * i + 1])
			: "r"(halves));
	}
#else
	for (int i = 0; i < 4; i++)
		out[i] = gsn_decode_f8_e4m3((uint8_t)(codes >> (8 * i)));
#endif
}

/* Two F16 codes to float, exactly. */
GSN_DEVICE_FN void gsn_decode_2_f16(unsigned codes, float out[2])
{
	asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
		: "=f"(out[0]), "=f"(out[1])
		: "r"(codes));
}

#endif
