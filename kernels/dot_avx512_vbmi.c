/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU path for AVX-512 with VBMI and GFNI. As a BF16 an E4M3 code is a bit matrix times the
 * code, plus a constant, unless it is a subnormal, a zero or NaN: rounds with one of those, which
 * weights that were scaled to the format's range have seldom, are looked up. Intel's permutes of
 * two registers' bytes take twice the time of all of that.
 */
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

/* Row i of a matrix makes bit i: bits of a code that are added up; stored last row first. */
#define ROWS(r0, r1, r2, r3, r4, r5, r6, r7)                                                       \
	(int64_t)(UINT64_C(r7) | UINT64_C(r6) << 8 | UINT64_C(r5) << 16 | UINT64_C(r4) << 24 |     \
		  UINT64_C(r3) << 32 | UINT64_C(r2) << 40 | UINT64_C(r1) << 48 |                   \
		  UINT64_C(r0) << 56)

/* The exponent eeee - 7 + 127 is eeee's upper bit, four times its complement, the rest. */
GSN_INLINE struct gsn_f8_words normal_64(__m512i codes)
{
	const __m512i to_lower = _mm512_set1_epi64(ROWS(0, 0, 0, 0, 0x01, 0x02, 0x04, 0x08));
	const __m512i to_upper =
		_mm512_set1_epi64(ROWS(0x10, 0x20, 0x40, 0x40, 0x40, 0x40, 0x40, 0x80));
	__m512i lower = _mm512_gf2p8affine_epi64_epi8(codes, to_lower, 0);
	__m512i upper = _mm512_gf2p8affine_epi64_epi8(codes, to_upper, 0x3c);

	return (struct gsn_f8_words){
		{_mm512_unpacklo_epi8(lower, upper), _mm512_unpackhi_epi8(lower, upper)}};
}

/* Which codes are zero, subnormal or NaN: magnitude 0 to 7, or 0x7f, which is -1 modulo 0x80. */
GSN_INLINE __mmask64 not_normal(__m512i codes)
{
	__m512i twice = _mm512_add_epi8(codes, codes);

	return _mm512_cmple_epu8_mask(
		_mm512_add_epi8(twice, _mm512_set1_epi8(2)), _mm512_set1_epi8(16));
}

GSN_INLINE struct gsn_f8_round decode_round(const uint8_t *codes)
{
	__m512i first = _mm512_loadu_si512(codes);
	__m512i second = _mm512_loadu_si512(codes + GSN_F8_HALF);

	if (__builtin_expect(_kortestz_mask64_u8(not_normal(first), not_normal(second)), 1))
		return (struct gsn_f8_round){{normal_64(first), normal_64(second)}};
	return (struct gsn_f8_round){{look_up_64(first), look_up_64(second)}};
}

static void dot_f8_e4m3(
	const struct gsn_dot_rows *rows, const float *const *x, uint32_t tokens, float *out)
{
	gsn_f8_dot_tokens(
		(struct gsn_f8_decoder){look_up_64, decode_round, false}, rows, x, tokens, out);
}

static bool supported(void)
{
	return gsn_cpu_has_avx512() && __builtin_cpu_supports("avx512vbmi") &&
	       __builtin_cpu_supports("gfni");
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
