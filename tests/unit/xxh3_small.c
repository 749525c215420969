/* SPDX-License-Identifier: Apache-2.0 */
/* What a GPU thread computes of XXH3-128, against the library's. */
#include "kernels/xxh3_small.h"

#include <gpusnap/digest.h>

#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { REPEATS = 20 };

static gpusnap_digest canonical(struct gsn_xxh3_hash hash)
{
	gpusnap_digest digest;

	for (int i = 0; i < 8; i++) {
		digest.bytes[i] = (uint8_t)(hash.high >> (56 - 8 * i));
		digest.bytes[8 + i] = (uint8_t)(hash.low >> (56 - 8 * i));
	}
	return digest;
}

START_TEST(inputs_of_every_small_length_hash_as_the_library_does)
{
	uint8_t data[GSN_XXH3_SMALL_BYTES];
	uint64_t seed = random_seed(17);

	for (int repeat = 0; repeat < REPEATS; repeat++) {
		for (uint32_t length = 0; length <= GSN_XXH3_SMALL_BYTES; length++) {
			random_fill(&seed, data, sizeof data);
			ck_assert_msg(gpusnap_digest_equal(canonical(gsn_xxh3_small(data, length)),
					      gpusnap_digest_of(data, length)),
				"%u bytes", length);
		}
	}
}
END_TEST

START_TEST(the_secret_reads_the_same_from_every_offset)
{
	const uint8_t *bytes = (const uint8_t *)gsn_xxh3_secret_words;

	for (uint32_t offset = 0; offset + 8 <= GSN_XXH3_SECRET_BYTES; offset++)
		ck_assert_uint_eq(gsn_xxh3_secret(offset), gsn_xxh3_read64(bytes + offset));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		inputs_of_every_small_length_hash_as_the_library_does,
		the_secret_reads_the_same_from_every_offset,
	};

	return RUN_SUITE("xxh3_small", tests);
}
