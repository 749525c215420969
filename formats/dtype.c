/* SPDX-License-Identifier: Apache-2.0 */
/* Element types: names, widths, and the byte size of a dense tensor. */
#include <gpusnap/dtype.h>

#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "formats/base/bytes.h"
#include "formats/base/fail.h"
#include "formats/base/text.h"

static const struct dtype_row {
	const char *name;
	uint32_t bits;
} dtype_rows[] = {
#define DTYPE_ROW(name, bits) {#name, bits},
	GPUSNAP_DTYPE_MAP(DTYPE_ROW)
#undef DTYPE_ROW
};

_Static_assert(sizeof dtype_rows / sizeof dtype_rows[0] == GPUSNAP_DTYPE_COUNT, "one row a dtype");

const char *gpusnap_dtype_name(gpusnap_dtype dtype)
{
	assert((unsigned)dtype < GPUSNAP_DTYPE_COUNT);
	return dtype_rows[dtype].name;
}

uint32_t gpusnap_dtype_bits(gpusnap_dtype dtype)
{
	assert((unsigned)dtype < GPUSNAP_DTYPE_COUNT);
	return dtype_rows[dtype].bits;
}

static gpusnap_status fail_unknown(const char *name, gpusnap_error *err)
{
	char quoted[GSN_QUOTE_BYTES];

	gsn_quote(name, strlen(name), quoted);
	for (int i = 0; i < GPUSNAP_DTYPE_COUNT; i++)
		if (strcasecmp(name, dtype_rows[i].name) == 0)
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"unknown dtype '%s'; dtypes are spelled in upper case: '%s'",
				quoted, dtype_rows[i].name);
	return gsn_fail(err, GPUSNAP_E_FORMAT,
		"unknown dtype '%s'; the format has BOOL, F4 to F64, BF16, I8 to U64 and C64",
		quoted);
}

gpusnap_status gpusnap_dtype_parse(const char *name, gpusnap_dtype *ret_dtype, gpusnap_error *err)
{
	for (int i = 0; i < GPUSNAP_DTYPE_COUNT; i++)
		if (strcmp(name, dtype_rows[i].name) == 0) {
			*ret_dtype = (gpusnap_dtype)i;
			return GPUSNAP_OK;
		}
	return fail_unknown(name, err);
}

gpusnap_status gpusnap_dtype_tensor_bytes(gpusnap_dtype dtype, uint32_t rank, const uint64_t *shape,
	uint64_t *ret_bytes, gpusnap_error *err)
{
	uint64_t elements = 1;
	uint64_t bits;

	for (uint32_t i = 0; i < rank; i++)
		if (gsn_mul_overflow(elements, shape[i], &elements))
			return gsn_fail(err, GPUSNAP_E_FORMAT,
				"the element count overflows 64 bits at dimension %" PRIu32
				" of %" PRIu32 " (%" PRIu64 ")",
				i, rank, shape[i]);
	if (gsn_mul_overflow(elements, gpusnap_dtype_bits(dtype), &bits))
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu64 " elements of %s overflow 64 bits", elements,
			gpusnap_dtype_name(dtype));
	if (bits % 8)
		return gsn_fail(err, GPUSNAP_E_FORMAT,
			"%" PRIu64 " elements of %s are %" PRIu64
			" bits, which is no whole number of bytes",
			elements, gpusnap_dtype_name(dtype), bits);
	*ret_bytes = bits / 8;
	return GPUSNAP_OK;
}
