/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the header's functions fails once: E_NOMEM, no output, no leak (ASan). */
#include <stdio.h>
#include <string.h>

#include <gpusnap/digest.h>
#include <gpusnap/json.h>
#include <gpusnap/safetensors.h>

#include "tests/support/alloc_fault.h"
#include "tests/support/suite.h"

enum { TENSORS = 150 };

static const uint64_t one[] = {1, 1};
static char names[TENSORS][8];
static gpusnap_tensor tensors[TENSORS];
static const gpusnap_metadata metadata[] = {{"a", "b"}, {"c", "d"}};

static void make_tensors(void)
{
	for (size_t i = 0; i < TENSORS; i++) {
		(void)snprintf(names[i], sizeof names[i], "t%zu", i);
		tensors[i] = (gpusnap_tensor){.name = names[i],
			.name_length = strlen(names[i]),
			.dtype = GPUSNAP_U8,
			.rank = 2,
			.shape = one,
			.begin = i,
			.end = i + 1};
	}
}

START_TEST(build_survives_each_failing_allocation)
{
	uint8_t *bytes = NULL;
	uint64_t length;
	gpusnap_error err;
	int failures = 0;

	make_tensors();
	for (long n = 0;; n++) {
		gpusnap_status status;

		alloc_fault_set(n);
		status = gpusnap_header_build(
			tensors, TENSORS, metadata, 2, 8, &bytes, &length, &err);
		if (!alloc_fault_hit()) {
			ck_assert_int_eq(status, GPUSNAP_OK);
			break;
		}
		ck_fails(status, GPUSNAP_E_NOMEM, "no memory");
		ck_assert_ptr_null(bytes);
		failures++;
	}
	alloc_fault_set(-1);
	ck_assert_int_eq(failures, 3);
	gpusnap_header_bytes_free(bytes);
}
END_TEST

START_TEST(parse_survives_each_failing_allocation)
{
	gpusnap_header *header = NULL;
	gpusnap_error err;
	uint64_t length;
	uint8_t *bytes;
	int failures = 0;

	make_tensors();
	ck_ok(gpusnap_header_build(tensors, TENSORS, metadata, 2, 8, &bytes, &length, &err));
	for (long n = 0;; n++) {
		gpusnap_status status;

		alloc_fault_set(n);
		status = gpusnap_header_parse(
			(const char *)bytes + 8, length - 8, length + TENSORS, &header, &err);
		if (!alloc_fault_hit()) {
			ck_assert_int_eq(status, GPUSNAP_OK);
			break;
		}
		ck_fails(status, GPUSNAP_E_NOMEM, "no memory");
		ck_assert_ptr_null(header);
		failures++;
	}
	alloc_fault_set(-1);
	/* Header, text, index, metadata; tensors doubled from 64 to 256, dims from 64 to 512. */
	ck_assert_int_eq(failures, 4 + 3 + 4);
	gpusnap_header_free(header);
	gpusnap_header_bytes_free(bytes);
}
END_TEST

START_TEST(dump_and_stream_answer_null)
{
	gpusnap_json *value = gpusnap_json_pack("[i]", 1);

	ck_assert_ptr_nonnull(value);
	alloc_fault_set(0);
	ck_assert_ptr_null(gpusnap_json_dump(value));
	alloc_fault_set(0);
	ck_assert_ptr_null(gpusnap_digest_stream_new());
	alloc_fault_set(-1);
	gpusnap_json_free(value);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		build_survives_each_failing_allocation,
		parse_survives_each_failing_allocation,
		dump_and_stream_answer_null,
	};

	return RUN_SUITE("header_memory", tests);
}
