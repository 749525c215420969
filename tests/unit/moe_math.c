/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/moe_math.h"

#include <stdbool.h>

#include "tests/support/suite.h"

/* |got - e^x| in units of the last place of e^x, as a float. */
static double exp_error_ulp(float x, float got)
{
	double exact = exp((double)x);
	int exponent;
	double ulp;

	(void)frexp(exact, &exponent);
	ulp = fmax(ldexp(1.0, exponent - 24), 0x1p-149);
	return fabs((double)got - exact) / ulp;
}

static const float largest_finite_exp = 0x1.62e42ep6f; /* e^x of the next float overflows */

/* Every 251st float between the limits, on both sides: 8.9 million. */
START_TEST(expf_is_within_1_1_ulp)
{
	double worst = 0.0;

	for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 251) {
		float x = gsn_float_from_bits((uint32_t)bits);

		if (x <= largest_finite_exp && x >= -110.0f)
			worst = fmax(worst, exp_error_ulp(x, gsn_expf(x)));
	}
	ck_assert_msg(worst <= 1.1, "worst error is %g ulp", worst);
	ck_assert_msg(worst > 0.5, "%g ulp: nothing was measured", worst);
}
END_TEST

START_TEST(expf_holds_at_the_ends_of_the_range)
{
	ck_assert(gsn_expf(0.0f) == 1.0f);
	ck_assert(gsn_expf(-0.0f) == 1.0f);
	ck_assert(isfinite(gsn_expf(largest_finite_exp)));
	ck_assert(gsn_expf(nextafterf(largest_finite_exp, INFINITY)) == INFINITY);
	ck_assert(gsn_expf(3.0e38f) == INFINITY);
	ck_assert(gsn_expf(INFINITY) == INFINITY);
	ck_assert(gsn_expf(-103.9f) == 0x1p-149f); /* the smallest subnormal, not flushed */
	ck_assert(gsn_expf(-104.0f) == 0.0f);
	ck_assert(gsn_expf(-3.0e38f) == 0.0f);
	ck_assert(gsn_expf(-INFINITY) == 0.0f);
	ck_assert(isnan(gsn_expf(NAN)));
	ck_assert(isnan(gsn_expf(gsn_float_from_bits(UINT32_C(0xffffffff)))));
	ck_assert(isnan(gsn_expf(gsn_float_from_bits(UINT32_C(0x7f800001)))));
}
END_TEST

/* sign * (1 + m/8) * 2^(e-7), or m/8 * 2^-6 */
static float e4m3_value(unsigned code)
{
	int exponent = (int)(code >> 3 & 15);
	double fraction = (code & 7) / 8.0;
	double value = exponent ? ldexp(1.0 + fraction, exponent - 7) : ldexp(fraction, -6);

	return (float)(code & 0x80 ? -value : value);
}

START_TEST(every_f8_e4m3_code_is_decoded_exactly)
{
	for (unsigned code = 0; code < 256; code++) {
		float got = gsn_decode_f8_e4m3((uint8_t)code);

		if ((code & 0x7f) == 0x7f)
			ck_assert_msg(isnan(got), "code %#x gives %g", code, (double)got);
		else
			ck_assert_msg(gsn_float_bits(got) == gsn_float_bits(e4m3_value(code)),
				"code %#x gives %g", code, (double)got);
	}
	ck_assert(gsn_decode_f8_e4m3(0x7e) == 448.0f);
	ck_assert(gsn_decode_f8_e4m3(0x01) == 0x1p-9f);
}
END_TEST

static double f16_value(unsigned code)
{
	int exponent = (int)(code >> 10 & 31);
	double fraction = (code & 1023) / 1024.0;
	double value = exponent ? ldexp(1.0 + fraction, exponent - 15) : ldexp(fraction, -14);

	return code & 0x8000 ? -value : value;
}

START_TEST(every_f16_code_is_decoded_exactly)
{
	for (unsigned code = 0; code < 65536; code++) {
		float got = gsn_decode_f16((uint16_t)code);
		bool special = (code & 0x7c00) == 0x7c00;

		if (special && (code & 0x3ff))
			ck_assert(isnan(got));
		else if (special)
			ck_assert(got == (code & 0x8000 ? -INFINITY : INFINITY));
		else
			ck_assert_uint_eq(
				gsn_float_bits(got), gsn_float_bits((float)f16_value(code)));
	}
}
END_TEST

START_TEST(bf16_is_the_upper_half_of_a_float)
{
	ck_assert(gsn_decode_bf16(0x3f80) == 1.0f);
	ck_assert(gsn_decode_bf16(0xc049) == -3.140625f);
	ck_assert(gsn_decode_bf16(0x0001) == 0x1p-133f); /* subnormal */
	ck_assert(gsn_decode_bf16(0xff80) == -INFINITY);
	ck_assert(isnan(gsn_decode_bf16(0x7fc0)));
}
END_TEST

START_TEST(canonical_keeps_values_and_joins_nans_and_zeros)
{
	const uint32_t nans[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xffffffff};

	for (size_t i = 0; i < sizeof nans / sizeof nans[0]; i++)
		ck_assert_uint_eq(
			gsn_float_bits(gsn_canonical(gsn_float_from_bits(nans[i]))), GSN_NAN_BITS);
	ck_assert_uint_eq(gsn_float_bits(gsn_canonical(-0.0f)), 0);
	ck_assert(gsn_canonical(-0x1p-149f) == -0x1p-149f);
	ck_assert(gsn_canonical(-INFINITY) == -INFINITY);
	ck_assert(gsn_is_finite(3.0e38f) && gsn_is_finite(0.0f));
	ck_assert(!gsn_is_finite(INFINITY) && !gsn_is_finite(-INFINITY) && !gsn_is_finite(NAN));
}
END_TEST

START_TEST(silu_mul_follows_its_formula_and_its_limits)
{
	for (int i = -216; i <= 216; i++) {
		float g = (float)i * 0.37f;
		double exact = (double)g / (1.0 + exp(-(double)g)) * 1.7;

		ck_assert_double_le(
			fabs((double)gsn_silu_mul(g, 1.7f) - exact), 5.0 * 0x1p-24 * fabs(exact));
	}
	ck_assert(gsn_silu_mul(0.0f, 5.0f) == 0.0f);
	ck_assert(gsn_silu_mul(-200.0f, 5.0f) == 0.0f); /* e^200 is infinite */
	ck_assert(gsn_silu_mul(200.0f, 2.0f) == 400.0f);
	ck_assert(isnan(gsn_silu_mul(NAN, 0.0f)));
}
END_TEST

/* Every 1009th float: the roots of the host's instruction, which is exact, and of one that is not.
 */
START_TEST(roots_are_rounded_to_nearest_whatever_the_instruction_gives)
{
	for (uint64_t bits = 0; bits <= 0x7f800000; bits += 4001) {
		float x = gsn_float_from_bits((uint32_t)bits);
		float root = sqrtf(x);

		ck_assert(gsn_sqrtf(x) == root);
		if (x < 0x1p-96f)
			continue;
		ck_assert(gsn_round_root(x, nextafterf(root, 0.0f)) == root);
		ck_assert(gsn_round_root(x, nextafterf(root, INFINITY)) == root);
	}
	ck_assert(gsn_sqrtf(INFINITY) == INFINITY);
	ck_assert(gsn_float_bits(gsn_sqrtf(-0.0f)) == 0x80000000u);
	ck_assert(isnan(gsn_sqrtf(-1.0f)));
	ck_assert(isnan(gsn_sqrtf(NAN)));
}
END_TEST

/* |got - exact| in units of the last place of `exact`, as a float. */
static double error_ulp(double exact, float got)
{
	int exponent;

	(void)frexp(exact, &exponent);
	return fabs((double)got - exact) / fmax(ldexp(1.0, exponent - 24), 0x1p-149);
}

START_TEST(log1p_of_0_to_1_is_within_1_4_ulp)
{
	double worst = 0.0;

	for (uint32_t bits = 0; bits <= UINT32_C(0x3f800000); bits += 1201) {
		float t = gsn_float_from_bits(bits);

		worst = fmax(worst, error_ulp(log1p((double)t), gsn_log1p_unit(t)));
	}
	ck_assert_msg(worst <= 1.4, "worst error is %g ulp", worst);
	ck_assert_msg(worst > 0.5, "%g ulp: nothing was measured", worst);
}
END_TEST

START_TEST(softplus_is_within_1_7_ulp)
{
	double worst = 0.0;

	for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4001) {
		float x = gsn_float_from_bits((uint32_t)bits);

		if (gsn_is_finite(x))
			worst = fmax(worst,
				error_ulp((double)x > 700.0 ? (double)x : log1p(exp((double)x)),
					gsn_softplus(x)));
	}
	ck_assert_msg(worst <= 1.7, "worst error is %g ulp", worst);
	ck_assert_msg(worst > 0.5, "%g ulp: nothing was measured", worst);
}
END_TEST

/* Values of torch.nn.functional.softplus, which is the identity above 20. */
START_TEST(softplus_holds_at_known_points)
{
	ck_assert_float_eq_tol(gsn_softplus(0.0f), 0.69314718f, 6e-8f);
	ck_assert_float_eq_tol(gsn_softplus(1.0f), 1.31326169f, 1.2e-7f);
	ck_assert_float_eq_tol(gsn_softplus(-1.0f), 0.31326169f, 3e-8f);
	ck_assert_float_eq_tol(gsn_softplus(-20.0f), 2.0611537e-9f, 3e-16f);
	for (int power = 0; power < 80; power++)
		ck_assert(gsn_softplus(ldexpf(20.3f, power)) == ldexpf(20.3f, power));
	ck_assert(gsn_softplus(-200.0f) == 0.0f && gsn_softplus(-INFINITY) == 0.0f);
	ck_assert(gsn_softplus(INFINITY) == INFINITY);
	ck_assert(isnan(gsn_softplus(NAN)) && isnan(gsn_sqrt_softplus(NAN)));
	ck_assert_float_eq_tol(gsn_sqrt_softplus(0.0f), 0.83255461f, 6e-8f);
}
END_TEST

START_TEST(every_f4_and_e8m0_code_is_decoded_exactly)
{
	const float f4[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

	for (uint32_t code = 0; code < 256; code++) {
		float size = f4[code & 7];

		ck_assert_uint_eq(gsn_float_bits(gsn_decode_f4_e2m1(code)),
			gsn_float_bits(code & 8 ? -size : size)); /* the upper half is ignored */
		if (code < 255)
			ck_assert(gsn_decode_f8_e8m0((uint8_t)code) ==
				  (float)ldexp(1.0, (int)code - 127));
	}
	ck_assert_uint_eq(gsn_float_bits(gsn_decode_f8_e8m0(255)), GSN_NAN_BITS);
}
END_TEST

/* The formula of gpt_oss/torch/model.py: gate at most 7, up from -7 to 7, alpha 1.702. */
START_TEST(swiglu_of_gpt_oss_holds_at_known_points)
{
	ck_assert_float_eq_tol(gsn_swiglu_oai(1.0f, 0.0f, 7.0f), 0.84579577f, 2e-7f);
	ck_assert_float_eq_tol(gsn_swiglu_oai(-1.0f, 2.0f, 7.0f), -0.46261270f, 2e-7f);
	ck_assert_float_eq_tol(gsn_swiglu_oai(10.0f, 3.0f, 7.0f), 27.9998125f, 4e-6f);
	ck_assert_float_eq_tol(gsn_swiglu_oai(10.0f, -9.0f, 7.0f), -41.9997188f, 8e-6f);
	ck_assert_float_eq_tol(gsn_swiglu_oai(0.5f, 9.0f, 7.0f), 2.80310749f, 6e-7f);
	ck_assert(gsn_swiglu_oai(-300.0f, 1.0f, 7.0f) == 0.0f);
	ck_assert(gsn_swiglu_oai(10.0f, 9.0f, INFINITY) > 99.9f); /* no limit */
	ck_assert(gsn_swiglu_oai(3.0f, -1.0f, 7.0f) == 0.0f);
}
END_TEST

START_TEST(limits_hold_gate_and_up_and_let_nans_through)
{
	ck_assert(gsn_swiglu(200.0f, 2.0f, 10.0f) == gsn_silu_mul(10.0f, 2.0f));
	ck_assert(gsn_swiglu(-200.0f, 2.0f, 10.0f) == gsn_silu_mul(-200.0f, 2.0f));
	ck_assert(gsn_swiglu(1.0f, 20.0f, 10.0f) == gsn_silu_mul(1.0f, 10.0f));
	ck_assert(gsn_swiglu(1.0f, -20.0f, 10.0f) == gsn_silu_mul(1.0f, -10.0f));
	ck_assert(gsn_swiglu(200.0f, -2e30f, INFINITY) == gsn_silu_mul(200.0f, -2e30f));
	ck_assert(isnan(gsn_swiglu(NAN, 1.0f, 10.0f)) && isnan(gsn_swiglu(1.0f, NAN, 10.0f)));
	ck_assert(isnan(gsn_swiglu_oai(NAN, 1.0f, 7.0f)) && isnan(gsn_swiglu_oai(1.0f, NAN, 7.0f)));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		expf_is_within_1_1_ulp,
		expf_holds_at_the_ends_of_the_range,
		every_f8_e4m3_code_is_decoded_exactly,
		every_f16_code_is_decoded_exactly,
		bf16_is_the_upper_half_of_a_float,
		canonical_keeps_values_and_joins_nans_and_zeros,
		silu_mul_follows_its_formula_and_its_limits,
		log1p_of_0_to_1_is_within_1_4_ulp,
		softplus_is_within_1_7_ulp,
		softplus_holds_at_known_points,
		every_f4_and_e8m0_code_is_decoded_exactly,
		swiglu_of_gpt_oss_holds_at_known_points,
		limits_hold_gate_and_up_and_let_nans_through,
		roots_are_rounded_to_nearest_whatever_the_instruction_gives,
	};

	return RUN_SUITE("moe_math", tests);
}
