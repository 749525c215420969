/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_DTYPE_H
#define GPUSNAP_DTYPE_H
/* The 22 element types of safetensors, with their spelling and width. */
#include <stdint.h>

#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* X(name as the format spells it, bits of one element) */
#define GPUSNAP_DTYPE_MAP(X)                                                                       \
	X(BOOL, 8)                                                                                 \
	X(F4, 4)                                                                                   \
	X(F6_E2M3, 6)                                                                              \
	X(F6_E3M2, 6)                                                                              \
	X(U8, 8)                                                                                   \
	X(I8, 8)                                                                                   \
	X(F8_E5M2, 8)                                                                              \
	X(F8_E4M3, 8)                                                                              \
	X(F8_E8M0, 8)                                                                              \
	X(F8_E4M3FNUZ, 8)                                                                          \
	X(F8_E5M2FNUZ, 8)                                                                          \
	X(I16, 16)                                                                                 \
	X(U16, 16)                                                                                 \
	X(F16, 16)                                                                                 \
	X(BF16, 16)                                                                                \
	X(I32, 32)                                                                                 \
	X(U32, 32)                                                                                 \
	X(F32, 32)                                                                                 \
	X(C64, 64)                                                                                 \
	X(F64, 64)                                                                                 \
	X(I64, 64)                                                                                 \
	X(U64, 64)

typedef enum gpusnap_dtype {
#define GPUSNAP_DTYPE_ENUM(name, bits) GPUSNAP_##name,
	GPUSNAP_DTYPE_MAP(GPUSNAP_DTYPE_ENUM)
#undef GPUSNAP_DTYPE_ENUM
		GPUSNAP_DTYPE_COUNT
} gpusnap_dtype;

/** Spelling in a safetensors header, "BF16". Static string. */
GPUSNAP_API const char *gpusnap_dtype_name(gpusnap_dtype dtype);
/** Bits of one element: 4, 6, 8, 16, 32 or 64. */
GPUSNAP_API uint32_t gpusnap_dtype_bits(gpusnap_dtype dtype);
/** Look a spelling up; case-sensitive. E_FORMAT for an unknown one. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dtype_parse(
	const char *name, gpusnap_dtype *ret_dtype, gpusnap_error *err);
/**
 * Bytes of a dense tensor: product of `rank` dimensions (1 for rank 0), times the width.
 * E_FORMAT when the product overflows (left to right) or is no whole number of bytes.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_dtype_tensor_bytes(gpusnap_dtype dtype,
	uint32_t rank, const uint64_t *shape, uint64_t *ret_bytes, gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
