/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of the plan's and the records' readers fails once: E_NOMEM, no leak (ASan). */
#include <string.h>

#include <gpusnap/moe.h>
#include <gpusnap/plan.h>
#include <gpusnap/probe.h>

#include "tests/support/alloc_fault.h"
#include "tests/support/file.h"
#include "tests/support/suite.h"

#define GOLDEN GPUSNAP_TEST_DATA "/../../formats/golden/good/two_regions.gsnap"

char *__real_gsn_strdup(const char *text);
char *__wrap_gsn_strdup(const char *text);

char *__wrap_gsn_strdup(const char *text)
{
	return allocation_fails() ? NULL : __real_gsn_strdup(text);
}

static gpusnap_error err;

/* Header of the golden file, and the text of its plan, which it owns. */
static gpusnap_header *read_header(const char **ret_text)
{
	gpusnap_header *header;
	uint64_t json_bytes;
	size_t length;
	uint8_t *bytes = read_file(GOLDEN, &length);

	ck_ok(gpusnap_header_measure(bytes, length, length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse((const char *)bytes + 8, json_bytes, length, &header, &err));
	free(bytes);
	*ret_text = gpusnap_header_metadata(header, GPUSNAP_PLAN_KEY);
	return header;
}

START_TEST(plan_survives_each_failing_allocation)
{
	const char *text;
	gpusnap_header *header = read_header(&text);
	gpusnap_plan *plan = NULL;
	int failures = 0;

	for (;; failures++) {
		gpusnap_status status;

		alloc_fault_set(failures);
		status = gpusnap_plan_decode(text, strlen(text), header, &plan, &err);
		if (!alloc_fault_hit()) {
			ck_ok(status);
			break;
		}
		ck_fails(status, GPUSNAP_E_NOMEM, "no memory");
		ck_assert_ptr_null(plan);
	}
	alloc_fault_set(-1);
	/* Plan, writer; 2 regions of 2; 6 buffers of 2; 3 views of 4; 3 lists; 3 indexes. */
	ck_assert_int_eq(failures, 2 + 4 + 12 + 12 + 3 + 3);
	gpusnap_plan_free(plan);
	gpusnap_header_free(header);
}
END_TEST

START_TEST(records_survive_each_failing_allocation)
{
	const char *text;
	gpusnap_header *header = read_header(&text);
	gpusnap_plan *plan;
	gpusnap_moe_model *model = NULL;
	gpusnap_probe *probe = NULL;
	gpusnap_status status;
	int failures = 0;

	ck_ok(gpusnap_plan_decode(text, strlen(text), header, &plan, &err));
	for (;; failures++) {
		alloc_fault_set(failures);
		status = gpusnap_moe_model_decode(
			gpusnap_json_get(plan->records, "model"), &model, &err);
		if (!alloc_fault_hit())
			break;
		ck_fails(status, GPUSNAP_E_NOMEM, "no memory");
	}
	ck_ok(status);
	/* Model, family, layers, module, five buffers. */
	ck_assert_int_eq(failures, 9);
	for (failures = 0;; failures++) {
		alloc_fault_set(failures);
		status = gpusnap_probe_decode(
			gpusnap_json_get(plan->records, "probe"), &probe, &err);
		if (!alloc_fault_hit())
			break;
		ck_fails(status, GPUSNAP_E_NOMEM, "no memory");
	}
	ck_ok(status);
	/* Probe, layers, experts. */
	ck_assert_int_eq(failures, 3);
	alloc_fault_set(-1);
	gpusnap_moe_model_free(model);
	gpusnap_probe_free(probe);
	gpusnap_plan_free(plan);
	gpusnap_header_free(header);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
		plan_survives_each_failing_allocation,
		records_survive_each_failing_allocation,
	};

	return RUN_SUITE("plan_memory", tests);
}
