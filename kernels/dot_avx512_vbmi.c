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

GSN_INLINE struct gsn_f8_words look_up_64(__m512i codes)
{
	__m512i lower = _mm512_permutex2var_epi8(
		_mm512_load_si512(lower_bytes), codes, _mm512_load_si512(lower_bytes + 64));
	__m512i upper = _mm512_permutex2var_epi8(
		_mm512_load_si512(upper_bytes), codes, _mm512_load_si512(upper_bytes + 64));

	/* upper | (codes & sign) */
	upper = _mm512_ternarylogic_epi32(upper, codes, _mm512_set1_epi8((char)0x80), 0xf8);
	return (struct gsn_f8_words){
		{_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)}};
}

static void dot_f8_e4m3(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out)
{
	gsn_f8_dot_tokens((struct gsn_f8_decoder){look_up_64, false}, rows, x, tokens, out);
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
		[GSN_DOT_F8_E4M3] = dot_f8_e4m3,
		[GSN_DOT_F4] = gsn_dot_avx512_f4},
	.order = {[GSN_DOT_F8_E4M3] = gsn_f8_order_avx512, [GSN_DOT_F4] = gsn_f4_order_avx512},
	.activate = gsn_activate_avx512,
};
