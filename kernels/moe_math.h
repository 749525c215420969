/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_MOE_MATH_H
#define GSN_MOE_MATH_H
/*
 * The scalar functions of the MoE arithmetic, the same source for every device, so that the bits
 * are the same (arithmetic.md). Only IEEE operations, fmaf and integers: no library function whose
 * last bit is a matter of taste. Compile without contraction, fast-math or flushing of denormals.
 */
#ifdef __cplusplus
#include <cmath>
#include <cstdint>
#include <cstring>
#else
#include <math.h>
#include <stdint.h>
#include <string.h>
#endif

#if defined(__CUDACC__) || defined(__HIPCC__)
#define GSN_MATH_FN static inline __host__ __device__
#else
#define GSN_MATH_FN static inline
#endif

#if defined(__HIP_DEVICE_COMPILE__)
#define GSN_ROUGH_SQRTF(x) __builtin_amdgcn_sqrtf(x)
#else
#define GSN_ROUGH_SQRTF(x) sqrtf(x)
#endif

#define GSN_NAN_BITS UINT32_C(0x7fc00000)

GSN_MATH_FN float gsn_float_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof value);
	return value;
}

GSN_MATH_FN uint32_t gsn_float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof bits);
	return bits;
}

/*
 * What is stored of a result: one NaN, and no negative zero. Devices differ in the NaN they make;
 * and with +0 only, a zero added (padding, another rank's slot) never shows.
 */
GSN_MATH_FN float gsn_canonical(float value)
{
	return value != value ? gsn_float_from_bits(GSN_NAN_BITS) : value + 0.0f;
}

/*
 * The root nearest to that of x, given one whose last bit may be off by one: the instruction of
 * AMD's GPUs is no better than that, and a root that is right already stays.
 */
GSN_MATH_FN float gsn_round_root(float x, float root)
{
	float below = gsn_float_from_bits(gsn_float_bits(root) - 1u);
	float above = gsn_float_from_bits(gsn_float_bits(root) + 1u);
	int too_large = fmaf(-below, root, x) <= 0.0f;
	int too_small = fmaf(-above, root, x) > 0.0f;

	return too_large ? below : too_small ? above : root;
}

/* sqrtf, rounded to nearest even; the residues above must not be subnormal. */
GSN_MATH_FN float gsn_sqrtf(float x)
{
	int small = x < 0x1p-96f;
	float scaled = small ? x * 0x1p32f : x;
	float root = gsn_round_root(scaled, GSN_ROUGH_SQRTF(scaled));

	return small ? root * 0x1p-16f : root;
}

/* Neither NaN nor infinite. */
GSN_MATH_FN int gsn_is_finite(float value)
{
	return (gsn_float_bits(value) & UINT32_C(0x7f800000)) != UINT32_C(0x7f800000);
}

GSN_MATH_FN float gsn_decode_bf16(uint16_t code)
{
	return gsn_float_from_bits((uint32_t)code << 16);
}

/* Exact: the magnitude's bits moved to a float are 2^-112 too small, also for subnormals. */
GSN_MATH_FN float gsn_decode_f16(uint16_t code)
{
	uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
	uint32_t magnitude = code & 0x7fffu;

	if (magnitude >= 0x7c00u)
		return gsn_float_from_bits(
			sign | UINT32_C(0x7f800000) | (magnitude & 0x3ffu) << 13);
	return gsn_float_from_bits(sign | magnitude << 13) * 0x1p112f;
}

/* E4M3 "FN": bias 7, subnormals, no infinity; 0x7f and 0xff are NaN and stay NaN. */
GSN_MATH_FN float gsn_decode_f8_e4m3(uint8_t code)
{
	uint32_t sign = (uint32_t)(code & 0x80u) << 24;
	uint32_t magnitude = code & 0x7fu;

	if (magnitude == 0x7fu)
		return gsn_float_from_bits(GSN_NAN_BITS);
	return gsn_float_from_bits(sign | magnitude << 20) * 0x1p120f;
}

/* E2M1: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives, from the lower four bits. Exact. */
GSN_MATH_FN float gsn_decode_f4_e2m1(uint32_t code)
{
	return gsn_float_from_bits((code & 8u) << 28 | (code & 7u) << 22) * 0x1p126f;
}

/* E8M0: 2^(code - 127), of which 0 is a subnormal; 255 is NaN and stays NaN. */
GSN_MATH_FN float gsn_decode_f8_e8m0(uint8_t code)
{
	return gsn_float_from_bits(code == 0	 ? UINT32_C(0x00400000)
				   : code == 255 ? GSN_NAN_BITS
						 : (uint32_t)code << 23);
}

/* 2^power, -126 <= power <= 127. */
GSN_MATH_FN float gsn_power_of_two(int32_t power)
{
	return gsn_float_from_bits((uint32_t)(power + 127) << 23);
}

/*
 * e^x over all floats: x = n ln2 + r, |r| <= ln2/2, e^r by the polynomial of Cephes' expf, times
 * 2^n in two steps, so that overflow gives infinity and subnormal results are rounded once. NaN
 * stays NaN. No branch, so that compilers vectorise it. Error <= 1.1 ulp (tests/unit/moe_math.c).
 */
GSN_MATH_FN float gsn_expf(float x)
{
	const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
	float clamped = x > 89.0f ? 89.0f : x;
	float shifted, n, r, p;
	int32_t power, half;

	clamped = clamped < -104.0f ? -104.0f : clamped;
	shifted = fmaf(clamped, 1.44269504f, shift);
	n = shifted - shift;
	r = fmaf(n, -0.693359375f, clamped);
	r = fmaf(n, 2.12194440e-4f, r);
	p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
	p = fmaf(p, r, 8.3334519073e-3f);
	p = fmaf(p, r, 4.1665795894e-2f);
	p = fmaf(p, r, 1.6666665459e-1f);
	p = fmaf(p, r, 5.0000001201e-1f);
	p = fmaf(p, r * r, r) + 1.0f;
	/* A NaN leaves any bits here: mask them, p is NaN whatever the factors are. */
	power = (int32_t)((gsn_float_bits(shifted) - gsn_float_bits(shift) + 256u) & 511u) - 256;
	half = power / 2;
	return p * gsn_power_of_two(half) * gsn_power_of_two(power - half);
}

GSN_MATH_FN float gsn_sigmoid(float x)
{
	return 1.0f / (1.0f + gsn_expf(-x));
}

/*
 * log(1 + t) for t from 0 to 1, as FreeBSD's logf has it: 1 + t = 2^k (1 + f), then with
 * s = f / (2 + f) a polynomial of s^2. NaN stays NaN. Error <= 1.4 ulp (tests/unit/moe_math.c).
 */
GSN_MATH_FN float gsn_log1p_unit(float t)
{
	int halved = t > 0.41421356f;
	float f = halved ? (t - 1.0f) * 0.5f : t;
	float high = halved ? 6.9313812256e-01f : 0.0f;
	float low = halved ? 9.0580006145e-06f : 0.0f;
	float s = f / (2.0f + f);
	float z = s * s;
	float half_square = 0.5f * f * f;
	float r = fmaf(z, 0.24279078841f, 0.28498786688f);

	r = fmaf(z, r, 0.40000972152f);
	r = fmaf(z, r, 0.66666662693f);
	r = fmaf(s, fmaf(z, r, half_square), low);
	return high - ((half_square - r) - f);
}

/* log(1 + e^x); x itself where e^-x does not show, as above 20. Error <= 1.7 ulp. */
GSN_MATH_FN float gsn_softplus(float x)
{
	return (x > 0.0f ? x : 0.0f) + gsn_log1p_unit(gsn_expf(x > 0.0f ? -x : x));
}

GSN_MATH_FN float gsn_sqrt_softplus(float x)
{
	return sqrtf(gsn_softplus(x));
}

/* silu(gate) * up */
GSN_MATH_FN float gsn_silu_mul(float gate, float up)
{
	return gate / (1.0f + gsn_expf(-gate)) * up;
}

/* A NaN is within every limit; an infinite limit limits nothing. */
GSN_MATH_FN float gsn_at_most(float value, float limit)
{
	return value > limit ? limit : value;
}

GSN_MATH_FN float gsn_within(float value, float limit)
{
	return gsn_at_most(value < -limit ? -limit : value, limit);
}

/* y of a row of w2; where the weight is part of h already, it still weighs the bias. */
GSN_MATH_FN float gsn_weighted_row(float dot, float bias, float weight, uint32_t weight_in_h)
{
	return gsn_canonical(weight_in_h ? dot + weight * bias : weight * (dot + bias));
}

/* silu with a limit */
GSN_MATH_FN float gsn_swiglu(float gate, float up, float limit)
{
	return gsn_silu_mul(gsn_at_most(gate, limit), gsn_within(up, limit));
}

/* (up + 1) * gate * sigmoid(1.702 gate), limited */
GSN_MATH_FN float gsn_swiglu_oai(float gate, float up, float limit)
{
	float g = gsn_at_most(gate, limit);

	return g / (1.0f + gsn_expf(-(1.702f * g))) * (gsn_within(up, limit) + 1.0f);
}

#endif
