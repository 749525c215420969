/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU path for AVX-512 with VBMI: E4M3 codes are looked up, 64 at a time. */
#include "kernels/dot_avx512.h"

/* Magnitude 0..0x7f as the bits of a BF16: 8 and more are normal numbers, 0x7f is NaN. */
#define E4M3_AS_BF16(m)                                                                            \
	((m) == 0x7f	   ? 0x7fc0                                                                \
		: (m) >= 8 ? 0x3c00 + ((m) << 4)                                                   \
		: (m) >= 4 ? 0x3c00 + ((m)-4) * 0x20                                               \
		: (m) >= 2 ? 0x3b80 + ((m)-2) * 0x40                                               \
			   : (m)*0x3b00)
#define LOWER(m)      ((uint8_t)(E4M3_AS_BF16(m) & 0xff))
#define UPPER(m)      ((uint8_t)(E4M3_AS_BF16(m) >> 8))
#define FOUR(f, m)    f(m), f((m) + 1), f((m) + 2), f((m) + 3)
#define SIXTEEN(f, m) FOUR(f, m), FOUR(f, (m) + 4), FOUR(f, (m) + 8), FOUR(f, (m) + 12)
#define SIXTY_FOUR(f, m)                                                                           \
	SIXTEEN(f, m), SIXTEEN(f, (m) + 16), SIXTEEN(f, (m) + 32), SIXTEEN(f, (m) + 48)

static const _Alignas(64) uint8_t lower_bytes[128] = {SIXTY_FOUR(LOWER, 0), SIXTY_FOUR(LOWER, 64)};
static const _Alignas(64) uint8_t upper_bytes[128] = {SIXTY_FOUR(UPPER, 0), SIXTY_FOUR(UPPER, 64)};

/*
 * Code i of each half of a chunk side by side, as the lower and upper word of 32 bits after
 * interleaving with the bytes of the other table: FOUR_PAIRS(c) are codes c..c+3 and c+8..c+11.
 */
#define PAIR(c)	      (c), (c) + 8
#define FOUR_PAIRS(c) PAIR(c), PAIR((c) + 1), PAIR((c) + 2), PAIR((c) + 3)
static const _Alignas(64) uint8_t pairing[64] = {FOUR_PAIRS(0), FOUR_PAIRS(32), FOUR_PAIRS(4),
	FOUR_PAIRS(36), FOUR_PAIRS(16), FOUR_PAIRS(48), FOUR_PAIRS(20), FOUR_PAIRS(52)};

GSN_INLINE struct decoded look_up_64(__m512i codes)
{
	const __m512i upper_word = _mm512_set1_epi32((int)0xffff0000);
	__m512i ordered = _mm512_permutexvar_epi8(_mm512_load_si512(pairing), codes);
	__m512i lower = _mm512_permutex2var_epi8(
		_mm512_load_si512(lower_bytes), ordered, _mm512_load_si512(lower_bytes + 64));
	__m512i upper = _mm512_permutex2var_epi8(
		_mm512_load_si512(upper_bytes), ordered, _mm512_load_si512(upper_bytes + 64));
	__m512i first, second;

	/* upper | (codes & sign) */
	upper = _mm512_ternarylogic_epi32(upper, ordered, _mm512_set1_epi8((char)0x80), 0xf8);
	first = _mm512_unpacklo_epi8(lower, upper);
	second = _mm512_unpackhi_epi8(lower, upper);
	return (struct decoded){{
		_mm512_castsi512_ps(_mm512_slli_epi32(first, 16)),
		_mm512_castsi512_ps(_mm512_and_si512(first, upper_word)),
		_mm512_castsi512_ps(_mm512_slli_epi32(second, 16)),
		_mm512_castsi512_ps(_mm512_and_si512(second, upper_word)),
	}};
}

static void dot_f8_e4m3(
	const struct gsn_dot_row *row, const float *const *x, uint32_t tokens, float *out)
{
	GSN_DOT_BY_TOKENS(dot_f8, look_up_64, row, x, tokens, out)
}

static bool supported(void)
{
	return gsn_cpu_has_avx512() && __builtin_cpu_supports("avx512vbmi");
}

const struct gsn_cpu_path gsn_cpu_avx512_vbmi = {
	.name = "avx512_vbmi",
	.supported = supported,
	.dot = {[GSN_DOT_F32] = gsn_dot_avx512_f32,
		[GSN_DOT_F16] = gsn_dot_avx512_f16,
		[GSN_DOT_BF16] = gsn_dot_avx512_bf16,
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3},
	.f8_order = gsn_f8_order_avx512,
	.silu_mul = gsn_silu_mul_avx512,
};
