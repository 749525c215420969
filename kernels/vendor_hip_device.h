/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_VENDOR_HIP_DEVICE_H
#define GSN_VENDOR_HIP_DEVICE_H
/*
 * What vendor_cuda_device.h gives, for AMD's compilers. A wave has 64 lanes; the kernels' groups of
 * 32 are its halves, which may go different ways. Nothing here calls AMD's device library, which
 * has no code for the newer targets in Debian.
 */
#ifndef __AMDGCN_WAVEFRONT_SIZE /* asked for by HIP's headers up to 6, not given since clang 22 */
#define __AMDGCN_WAVEFRONT_SIZE 64
#endif
#include <hip/hip_runtime.h>

#include "kernels/moe_math.h"

#define GSN_KERNEL    static __global__
#define GSN_DEVICE_FN static __device__ __forceinline__

/*
 * A compute unit has 4 SIMDs and a block is threads / 64 waves; registers are shared out by waves
 * of a SIMD. One wave may always have 256 of them, beyond which code only waits for itself.
 */
#define GSN_WAVES_PER_SIMD(threads, blocks)                                                        \
	((threads) * (blocks) / 256 > 2 ? (threads) * (blocks) / 256 : 2)
/* Larger blocks have the local memory of a compute unit to themselves: a wave for each SIMD. */
#define GSN_BLOCK_OF(threads) __launch_bounds__(threads, (threads) > 128 ? 1 : 2)
#define GSN_RESIDENT_BLOCKS(threads, count)                                                        \
	__launch_bounds__(threads, GSN_WAVES_PER_SIMD(threads, count))

enum {
	GSN_WARP = 32,
	GSN_SCALED_TOKENS = 2,	 /* that go through an expert at once; twice as many spill */
	GSN_PLAIN_TOKENS = 2,	 /* (without scales) */
	GSN_EXPERT_BLOCKS_1 = 4, /* resident, that registers leave room for: one token at once, */
	GSN_EXPERT_BLOCKS = 3,	 /* more tokens */
	GSN_DIGEST_AHEAD = 2,	 /* see vendor_cuda_device.h */
	GSN_DIGEST_RESIDENT = 8,
	GSN_STAGED_BYTES = 32 << 10, /* shared memory of a block: half of what there is */
};
/* How several tokens at once go through an expert (gsn_dot_shape). */
#define GSN_EXPERT_SHAPE GSN_DOT_TILED

/*
 * The functions of AMD's device library that HIP's headers up to 5 call for blockIdx, threadIdx,
 * blockDim, gridDim and __syncthreads, in the compiler's own terms.
 */
extern "C" {
__device__ inline size_t __ockl_get_local_id(unsigned dimension)
{
	return dimension == 0	? __builtin_amdgcn_workitem_id_x()
	       : dimension == 1 ? __builtin_amdgcn_workitem_id_y()
				: __builtin_amdgcn_workitem_id_z();
}

__device__ inline size_t __ockl_get_group_id(unsigned dimension)
{
	return dimension == 0	? __builtin_amdgcn_workgroup_id_x()
	       : dimension == 1 ? __builtin_amdgcn_workgroup_id_y()
				: __builtin_amdgcn_workgroup_id_z();
}

__device__ inline size_t __ockl_get_local_size(unsigned dimension)
{
	return dimension == 0	? __builtin_amdgcn_workgroup_size_x()
	       : dimension == 1 ? __builtin_amdgcn_workgroup_size_y()
				: __builtin_amdgcn_workgroup_size_z();
}

__device__ inline size_t __ockl_get_global_size(unsigned dimension)
{
	return dimension == 0	? __builtin_amdgcn_grid_size_x()
	       : dimension == 1 ? __builtin_amdgcn_grid_size_y()
				: __builtin_amdgcn_grid_size_z();
}

__device__ inline size_t __ockl_get_num_groups(unsigned dimension)
{
	return __ockl_get_global_size(dimension) / __ockl_get_local_size(dimension);
}

__device__ inline void __atomic_work_item_fence(unsigned, __memory_order, __memory_scope)
{
	__builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent");
}
}

typedef hipStream_t gpuStream_t;
#define gpuClearError		     hipGetLastError
#define gpuErrorInvalidConfiguration hipErrorInvalidConfiguration

/* Before a launch with so much shared memory: all that there is may be had. */
template <typename KERNEL> static int gpuAllowShared(KERNEL, uint32_t)
{
	return (int)hipSuccess;
}

GSN_DEVICE_FN unsigned gsn_lane_of_wave()
{
	return __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

/* The value of a lane of the wave, 32 bits at a time. */
template <typename T> GSN_DEVICE_FN T gsn_from_lane(T value, unsigned lane)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "values of one or two registers");
	int words[sizeof(T) / 4];

	__builtin_memcpy(words, &value, sizeof value);
	for (int &word : words)
		word = __builtin_amdgcn_ds_bpermute((int)(lane * 4), word);
	__builtin_memcpy(&value, words, sizeof value);
	return value;
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle_xor(T value, int distance)
{
	return gsn_from_lane(value, gsn_lane_of_wave() ^ (unsigned)distance);
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle_up(T value, unsigned distance)
{
	unsigned lane = gsn_lane_of_wave();

	return gsn_from_lane(value, lane % GSN_WARP < distance ? lane : lane - distance);
}

template <typename T> GSN_DEVICE_FN T gsn_shuffle(T value, int lane)
{
	return gsn_from_lane(value, (gsn_lane_of_wave() & ~(GSN_WARP - 1u)) + (unsigned)lane);
}

/* Bit i: lane i of the 32 says yes. */
GSN_DEVICE_FN unsigned gsn_ballot(bool yes)
{
	const int not_equal = 33; /* of LLVM's comparisons; clang 14 has no ballot */
	uint64_t wave = __builtin_amdgcn_uicmp((unsigned)yes, 0u, not_equal);

	return (unsigned)(wave >> (gsn_lane_of_wave() & GSN_WARP));
}

/* Lanes of a wave run together: only the order of memory accesses must hold. */
GSN_DEVICE_FN void gsn_warp_sync()
{
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "wavefront");
	__builtin_amdgcn_wave_barrier();
}

/* 16 bytes that are read once. */
GSN_DEVICE_FN uint4 gsn_load_streamed(const void *p)
{
	typedef unsigned words __attribute__((ext_vector_type(4)));
	words v = __builtin_nontemporal_load((const words *)p);

	return make_uint4(v.x, v.y, v.z, v.w);
}

/* 16 bytes that other lanes and waves read as well. */
GSN_DEVICE_FN float4 gsn_load_shared(const float *p)
{
	return *(const float4 *)p;
}

/* The 32 bits of (high, low) from bit `shift` on, shift < 32. */
GSN_DEVICE_FN unsigned gsn_funnel(unsigned low, unsigned high, unsigned shift)
{
	return __builtin_amdgcn_alignbit(high, low, shift);
}

/* Four E4M3 codes to float, exactly, by integers: no gfx90a has instructions for them, and those
 * of gfx942 take the codes for FNUZ, which are half as large. */
GSN_DEVICE_FN void gsn_decode_4_f8_e4m3(unsigned codes, float out[4])
{
	for (int i = 0; i < 4; i++)
		out[i] = gsn_decode_f8_e4m3((uint8_t)(codes >> (8 * i)));
}

/* Eight E2M1 codes to float, exactly. */
GSN_DEVICE_FN void gsn_decode_8_f4(unsigned codes, float out[8])
{
	for (int i = 0; i < 8; i++)
		out[i] = gsn_decode_f4_e2m1(codes >> (4 * i));
}

/* Two F16 codes to float, exactly. */
GSN_DEVICE_FN void gsn_decode_2_f16(unsigned codes, float out[2])
{
	for (int i = 0; i < 2; i++)
		out[i] = gsn_decode_f16((uint16_t)(codes >> (16 * i)));
}

#endif
