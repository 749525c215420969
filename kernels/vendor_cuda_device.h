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
	GSN_SCALED_TOKENS = 2,	 /* that go through an expert at once, its weights with scales, */
	GSN_PLAIN_TOKENS = 4,	 /* without: registers allow it */
	GSN_EXPERT_BLOCKS_1 = 4, /* resident, that registers leave room for: one token at once, */
	GSN_EXPERT_BLOCKS = 3,	 /* more tokens */
	/*
	 * Digests: blocks of 1 KiB that are loaded before they are used, resident blocks of
	 * threads. With more of the first there are fewer leaves at a time, and less of a rest at
	 * the end.
	 */
	GSN_DIGEST_AHEAD = 4,
	GSN_DIGEST_RESIDENT = 4,
	GSN_STAGED_BYTES = 112 << 10, /* shared memory of a block: half of what there is */
};
/* How several tokens at once go through an expert (gsn_dot_shape). */
#define GSN_EXPERT_SHAPE GSN_DOT_FED
#define GSN_HAS_FETCH	 1 /* copies to shared memory that nobody waits for */

typedef cudaStream_t gpuStream_t;
#define gpuClearError		     cudaGetLastError
#define gpuErrorInvalidConfiguration cudaErrorInvalidConfiguration

/* Before a launch with so much dynamic shared memory. @return the vendor's code */
template <typename KERNEL> static int gpuAllowShared(KERNEL kernel, uint32_t bytes)
{
	if (bytes <= 48 << 10)
		return cudaSuccess; /* that much may every kernel have */
	return (int)cudaFuncSetAttribute(
		kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
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

/* 16 bytes from the device's memory to the block's, done when gsn_fetch_wait() says so. */
GSN_DEVICE_FN void gsn_fetch(void *shared, const void *global)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
		     :
		     : "r"((unsigned)__cvta_generic_to_shared(shared)), "l"(global)
		     : "memory");
}

/* What the lane fetched since the last commit is one group. */
GSN_DEVICE_FN void gsn_fetch_commit()
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Until no more than the last LEFT groups of the lane are under way. */
template <int LEFT> GSN_DEVICE_FN void gsn_fetch_wait()
{
	asm volatile("cp.async.wait_group %0;" : : "n"(LEFT) : "memory");
}

/* 16 bytes that other lanes and warps read as well, of the device's or the block's memory. */
GSN_DEVICE_FN float4 gsn_load_shared(const float *p)
{
	return *(const float4 *)p;
}

/* The 32 bits of (high, low) from bit `shift` on, shift < 32. */
GSN_DEVICE_FN unsigned gsn_funnel(unsigned low, unsigned high, unsigned shift)
{
	return __funnelshift_r(low, high, shift);
}

/* Two F16 codes to float, exactly. */
GSN_DEVICE_FN void gsn_decode_2_f16(unsigned codes, float out[2])
{
	asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
		: "=f"(out[0]), "=f"(out[1])
		: "r"(codes));
}

/* The bytes of (low, high) that the four lower digits of `selector` name, each below 8. */
GSN_DEVICE_FN unsigned gsn_pick_bytes(unsigned low, unsigned high, unsigned selector)
{
	unsigned result;

	asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
	return result;
}

/*
 * Eight E2M1 codes to float, exactly: a code without its sign picks the upper byte of an F16, whose
 * lower byte is 0.
 */
GSN_DEVICE_FN void gsn_decode_8_f4(unsigned codes, float out[8])
{
	const unsigned small = 0x3e3c3800, large = 0x46444240; /* 0, 0.5, 1, 1.5; 2, 3, 4, 6 */
	const unsigned sizes = codes & 0x77777777, even_signs = codes << 4;

#pragma unroll
	for (int half = 0; half < 2; half++) {
		unsigned signs = gsn_pick_bytes(even_signs, codes, half ? 0x7362 : 0x5140);
		unsigned bytes = gsn_pick_bytes(small, large, half ? sizes >> 16 : sizes) |
				 (signs & 0x80808080);

		gsn_decode_2_f16(gsn_pick_bytes(bytes, 0, 0x1404), out + 4 * half);
		gsn_decode_2_f16(gsn_pick_bytes(bytes, 0, 0x3424), out + 4 * half + 2);
	}
}

/* Four E4M3 codes to float, exactly; a NaN code becomes a NaN. */
GSN_DEVICE_FN void gsn_decode_4_f8_e4m3(unsigned codes, float out[4])
{
#if __CUDA_ARCH__ >= 890
	unsigned halves[2];

	asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l;"
	    " cvt.rn.f16x2.e4m3x2 %1, h;}"
		: "=r"(halves[0]), "=r"(halves[1])
		: "r"(codes));
	gsn_decode_2_f16(halves[0], out);
	gsn_decode_2_f16(halves[1], out + 2);
#else
	for (int i = 0; i < 4; i++)
		out[i] = gsn_decode_f8_e4m3((uint8_t)(codes >> (8 * i)));
#endif
}

#endif
