/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle is the installed libxxhash, called by its plain one-shot name: another build of the
 * algorithm than the two that the module compiles for itself. Lengths follow the bugs that XXH3
 * ports have had: every short one, around each 64-byte stripe and 1024-byte block, and streams
 * that are split anywhere.
 */
#include <string.h>

#include <gpusnap/digest.h>
#include <xxhash.h>

#include "formats/base/bytes.h"
#include "formats/xxh.h"
#include "tests/support/random.h"
#include "tests/support/suite.h"

enum { LARGEST = 256 * 1024 + 64, ROOM = LARGEST + 64 };

static uint8_t *room(void)
{
	uint64_t state = 1;
	uint8_t *bytes = aligned_alloc(64, ROOM);

	ck_assert_ptr_nonnull(bytes);
	random_fill(&state, bytes, ROOM);
	return bytes;
}

static gpusnap_digest oracle(const void *data, size_t length)
{
	XXH128_canonical_t canonical;
	gpusnap_digest digest;

	XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, length));
	memcpy(digest.bytes, canonical.digest, sizeof digest.bytes);
	return digest;
}

/* Every build of the algorithm that this processor runs. */
static size_t tables(const struct gsn_xxh *ret_tables[2])
{
	size_t count = 0;

	ret_tables[count++] = &gsn_xxh_baseline;
#ifdef __x86_64__
	if (__builtin_cpu_supports("avx2"))
		ret_tables[count++] = &gsn_xxh_avx2;
#endif
	return count;
}

/* At once, and in two pieces, by one build. */
static void check_table(
	const struct gsn_xxh *table, const uint8_t *data, size_t length, gpusnap_digest expected)
{
	_Alignas(GSN_XXH_STATE_ALIGN) uint8_t state[GSN_XXH_STATE_BYTES];
	size_t first = length * 5 / 8;
	gpusnap_digest digest;

	table->hash(data, length, digest.bytes);
	ck_assert_msg(gpusnap_digest_equal(digest, expected), "length %zu", length);
	table->reset(state);
	table->update(state, data, first);
	table->update(state, data + first, length - first);
	table->finish(state, digest.bytes);
	ck_assert_msg(gpusnap_digest_equal(digest, expected), "in two pieces, length %zu", length);
}

/* Copied and hashed in one pass, to every place in a cache line, and not a byte beside. */
static void check_copy(
	const struct gsn_xxh *table, const uint8_t *data, size_t length, gpusnap_digest expected)
{
	static uint8_t copies[ROOM + 2 * 64];
	uint8_t *to = copies + 1 + length * 7 % 64;
	gpusnap_digest digest;

	to[-1] = to[length] = 0x5a;
	table->copy(to, data, length, digest.bytes);
	ck_assert_msg(gpusnap_digest_equal(digest, expected), "copied, length %zu", length);
	ck_assert_mem_eq(to, data, length);
	ck_assert_uint_eq(to[-1], 0x5a);
	ck_assert_uint_eq(to[length], 0x5a);
}

static void check(const uint8_t *data, size_t length)
{
	gpusnap_digest expected = oracle(data, length);
	gpusnap_digest digest = gpusnap_digest_of(data, length);
	const struct gsn_xxh *builds[2];
	size_t count = tables(builds);

	ck_assert_msg(gpusnap_digest_equal(digest, expected), "length %zu", length);
	for (size_t i = 0; i < count; i++) {
		check_table(builds[i], data, length, expected);
		if (length)
			check_copy(builds[i], data, length, expected);
	}
}

START_TEST(every_length_to_4160_is_bit_equal_to_the_library)
{
	uint8_t *bytes = room();

	for (size_t length = 0; length <= 4160; length++)
		check(bytes, length);
	free(bytes);
}
END_TEST

START_TEST(block_boundaries_to_256_kib_are_bit_equal_to_the_library)
{
	static const int around[] = {-64, -1, 0, 1, 64};
	uint8_t *bytes = room();

	for (size_t block = 1024; block <= 256 * 1024; block += 1024)
		for (size_t i = 0; i < sizeof around / sizeof around[0]; i++)
			check(bytes, block + (size_t)around[i]);
	free(bytes);
}
END_TEST

START_TEST(alignment_of_the_data_does_not_matter)
{
	static const size_t lengths[] = {1, 17, 129, 241, 1024, 1025, 4097, 65536};
	uint8_t *bytes = room();

	for (size_t start = 0; start < 64; start++)
		for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++)
			check(bytes + start, lengths[i]);
	free(bytes);
}
END_TEST

/* Feed `length` bytes in random pieces, short and long. */
static void feed(
	gpusnap_digest_stream *stream, const uint8_t *data, size_t length, uint64_t *random)
{
	size_t done = 0;

	while (done < length) {
		uint64_t most = UINT64_C(1) << random_below(random, 15);
		size_t piece = (size_t)gsn_min(random_below(random, most + 1), length - done);

		gpusnap_digest_stream_update(stream, data + done, piece);
		done += piece;
	}
}

START_TEST(streams_split_anywhere_give_the_one_shot_digest)
{
	uint64_t seed = random_seed(20), random = seed;
	gpusnap_digest_stream *stream = gpusnap_digest_stream_new();
	uint8_t *bytes = room();

	ck_assert_ptr_nonnull(stream);
	for (int round = 0; round < 3000; round++) {
		size_t length = (size_t)random_below(&random, round % 10 ? 6000 : LARGEST);
		size_t start = (size_t)random_below(&random, 64);
		gpusnap_digest half;

		feed(stream, bytes + start, length / 2, &random);
		half = gpusnap_digest_stream_finish(stream);
		ck_assert_msg(gpusnap_digest_equal(half, oracle(bytes + start, length / 2)),
			"first half of %zu, seed %llu", length, (unsigned long long)seed);
		feed(stream, bytes + start + length / 2, length - length / 2, &random);
		ck_assert_msg(gpusnap_digest_equal(gpusnap_digest_stream_finish(stream),
				      oracle(bytes + start, length)),
			"length %zu, seed %llu", length, (unsigned long long)seed);
		gpusnap_digest_stream_restart(stream);
	}
	gpusnap_digest_stream_free(stream);
	gpusnap_digest_stream_free(NULL);
	free(bytes);
}
END_TEST

/* All splits in two around the stream's 256-byte buffer and the 1024-byte block. */
START_TEST(streams_split_in_two_at_every_byte_agree)
{
	gpusnap_digest_stream *stream = gpusnap_digest_stream_new();
	uint8_t *bytes = room();
	gpusnap_digest expected = oracle(bytes, 2113);

	for (size_t at = 0; at <= 2113; at++) {
		gpusnap_digest_stream_restart(stream);
		gpusnap_digest_stream_update(stream, bytes, at);
		gpusnap_digest_stream_update(stream, bytes + at, 2113 - at);
		ck_assert_msg(gpusnap_digest_equal(gpusnap_digest_stream_finish(stream), expected),
			"split at %zu", at);
	}
	gpusnap_digest_stream_free(stream);
	free(bytes);
}
END_TEST

START_TEST(canonical_bytes_are_big_endian)
{
	char text[GPUSNAP_DIGEST_TEXT];

	/* Known answers: `xxhsum -H2` of nothing and of "abc". */
	ck_assert_str_eq(gpusnap_digest_format(gpusnap_digest_of(NULL, 0), text),
		"99aa06d3014798d86001c324468d497f");
	ck_assert_str_eq(gpusnap_digest_format(gpusnap_digest_of("abc", 3), text),
		"06b05ab6733a618578af5f94892f3950");
}
END_TEST

START_TEST(leaves_are_64_kib_and_the_last_is_shorter)
{
	ck_assert_uint_eq(gpusnap_leaf_count(0), 0);
	ck_assert_uint_eq(gpusnap_leaf_count(1), 1);
	ck_assert_uint_eq(gpusnap_leaf_count(65536), 1);
	ck_assert_uint_eq(gpusnap_leaf_count(65537), 2);
	ck_assert_uint_eq(gpusnap_leaf_count(UINT64_MAX), UINT64_C(1) << 48);
}
END_TEST

START_TEST(buffer_digest_covers_size_and_leaves)
{
	uint8_t *bytes = room();
	uint8_t message[8 + 3 * GPUSNAP_DIGEST_BYTES];
	gpusnap_digest leaves[3];

	for (size_t i = 0; i < 3; i++) {
		leaves[i] = oracle(bytes + i * GPUSNAP_LEAF_BYTES, i < 2 ? GPUSNAP_LEAF_BYTES : 5);
		memcpy(message + 8 + i * GPUSNAP_DIGEST_BYTES, leaves[i].bytes,
			GPUSNAP_DIGEST_BYTES);
	}
	gsn_put_le64(message, 2 * GPUSNAP_LEAF_BYTES + 5);
	ck_assert(gpusnap_digest_equal(gpusnap_digest_of_buffer(2 * GPUSNAP_LEAF_BYTES + 5, leaves),
		oracle(message, sizeof message)));
	ck_assert(
		!gpusnap_digest_equal(gpusnap_digest_of_buffer(2 * GPUSNAP_LEAF_BYTES + 6, leaves),
			oracle(message, sizeof message)));
	gsn_put_le64(message, 0);
	ck_assert(gpusnap_digest_equal(gpusnap_digest_of_buffer(0, NULL), oracle(message, 8)));
	free(bytes);
}
END_TEST

START_TEST(root_covers_each_of_its_parts)
{
	const gpusnap_digest zero = {{0}};
	gpusnap_digest header = gpusnap_digest_of("h", 1), leaves = gpusnap_digest_of("l", 1);
	gpusnap_digest parent = gpusnap_digest_of("p", 1);
	uint8_t message[60];

	gsn_put_le32(message, 1);
	memcpy(message + 4, header.bytes, 16);
	memcpy(message + 20, leaves.bytes, 16);
	gsn_put_le64(message + 36, 4096);
	memcpy(message + 44, parent.bytes, 16);
	ck_assert(gpusnap_digest_equal(gpusnap_digest_root(1, header, leaves, 4096, parent),
		oracle(message, sizeof message)));
	memset(message + 44, 0, 16);
	ck_assert(gpusnap_digest_equal(gpusnap_digest_root(1, header, leaves, 4096, zero),
		oracle(message, sizeof message)));
}
END_TEST

START_TEST(text_form_leads_back)
{
	gpusnap_digest digest = gpusnap_digest_of("x", 1), back;
	char text[GPUSNAP_DIGEST_TEXT];
	gpusnap_error err;

	ck_ok(gpusnap_digest_parse(gpusnap_digest_format(digest, text), &back, &err));
	ck_assert(gpusnap_digest_equal(digest, back));
	ck_ok(gpusnap_digest_parse("00FFaA0000000000000000000000000f", &back, &err));
	ck_assert_str_eq(gpusnap_digest_format(back, text), "00ffaa0000000000000000000000000f");
	ck_fails(gpusnap_digest_parse("00", &back, &err), GPUSNAP_E_FORMAT, "2 characters");
	ck_fails(gpusnap_digest_parse("00ffaa0000000000000000000000000f0", &back, &err),
		GPUSNAP_E_FORMAT, "33 characters");
	ck_fails(gpusnap_digest_parse("00ffaa000000000000000g000000000f", &back, &err),
		GPUSNAP_E_FORMAT, "position 21");
	ck_assert(gpusnap_digest_is_zero((gpusnap_digest){{0}}));
	ck_assert(!gpusnap_digest_is_zero(back));
}
END_TEST

#ifdef __x86_64__
/*
 * Upper halves of the AVX registers in use (XGETBV with 1 tells which state components differ from
 * their initial value; component 2 is AVX): left dirty, they slow all SSE code that follows.
 */
static int upper_halves_in_use(void)
{
	uint32_t low, high;

	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(1));
	return (low & 4) != 0;
}

static int has_xgetbv_1(void)
{
	uint32_t a = 0xd, b, c = 1, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return (a & 4) != 0;
}

/* After each function, since any of them may return by a way of its own for some lengths. */
static void check_clean(const struct gsn_xxh *table, const uint8_t *data, size_t length)
{
	_Alignas(GSN_XXH_STATE_ALIGN) uint8_t state[GSN_XXH_STATE_BYTES];
	uint8_t digest[GPUSNAP_DIGEST_BYTES];

	table->hash(data, length, digest);
	ck_assert_msg(!upper_halves_in_use(), "after a hash of %zu bytes", length);
	table->reset(state);
	ck_assert(!upper_halves_in_use());
	table->update(state, data, length);
	ck_assert_msg(!upper_halves_in_use(), "after a stream's first %zu bytes", length);
	table->update(state, data, length);
	ck_assert_msg(!upper_halves_in_use(), "after a stream's next %zu bytes", length);
	table->finish(state, digest);
	ck_assert_msg(!upper_halves_in_use(), "after a stream's end at %zu bytes", 2 * length);
}

START_TEST(hashing_leaves_the_upper_avx_halves_clean)
{
	const struct gsn_xxh *builds[2];
	size_t count = tables(builds);
	uint8_t *bytes = room();

	for (size_t i = 0; i < count && has_xgetbv_1(); i++) {
		for (size_t length = 0; length <= 4160; length++)
			check_clean(builds[i], bytes, length);
		check_clean(builds[i], bytes, LARGEST);
	}
	free(bytes);
}
END_TEST

START_TEST(dirty_upper_avx_halves_are_seen)
{
	/* Else the test above could not fail. */
	if (__builtin_cpu_supports("avx2") && has_xgetbv_1()) {
		__asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0" ::: "xmm0");
		ck_assert(upper_halves_in_use());
		__asm__ volatile("vzeroupper" ::: "xmm0");
		ck_assert(!upper_halves_in_use());
	}
}
END_TEST
#endif

int main(void)
{
	const TTest *const tests[] = {
		every_length_to_4160_is_bit_equal_to_the_library,
		block_boundaries_to_256_kib_are_bit_equal_to_the_library,
		alignment_of_the_data_does_not_matter,
		streams_split_anywhere_give_the_one_shot_digest,
		streams_split_in_two_at_every_byte_agree,
		canonical_bytes_are_big_endian,
		leaves_are_64_kib_and_the_last_is_shorter,
		buffer_digest_covers_size_and_leaves,
		root_covers_each_of_its_parts,
		text_form_leads_back,
#ifdef __x86_64__
		hashing_leaves_the_upper_avx_halves_clean,
		dirty_upper_avx_halves_are_seen,
#endif
	};

	return RUN_SUITE("digest_vectors", tests);
}
