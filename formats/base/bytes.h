/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_BYTES_H
#define GSN_BYTES_H
/* Little-endian access, checked arithmetic, alignment. */
#include <stdbool.h>
#include <stdint.h>

static inline uint32_t gsn_le32(const uint8_t *p)
{
	return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t gsn_le64(const uint8_t *p)
{
	return (uint64_t)gsn_le32(p) | (uint64_t)gsn_le32(p + 4) << 32;
}

static inline void gsn_put_le32(uint8_t *p, uint32_t value)
{
	for (int i = 0; i < 4; i++)
		p[i] = (uint8_t)(value >> (8 * i));
}

static inline void gsn_put_le64(uint8_t *p, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		p[i] = (uint8_t)(value >> (8 * i));
}

/* True on overflow, like the builtins. */
static inline bool gsn_add_overflow(uint64_t a, uint64_t b, uint64_t *sum)
{
	return __builtin_add_overflow(a, b, sum);
}

static inline bool gsn_mul_overflow(uint64_t a, uint64_t b, uint64_t *product)
{
	return __builtin_mul_overflow(a, b, product);
}

/* `alignment` is a power of two. */
static inline uint64_t gsn_align_up(uint64_t value, uint64_t alignment)
{
	return (value + alignment - 1) & ~(alignment - 1);
}

static inline uint64_t gsn_align_down(uint64_t value, uint64_t alignment)
{
	return value & ~(alignment - 1);
}

static inline uint64_t gsn_ceil_div(uint64_t value, uint64_t divisor)
{
	return value / divisor + (value % divisor != 0);
}

static inline uint64_t gsn_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t gsn_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
