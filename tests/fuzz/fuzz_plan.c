/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The input is a snapshot file whose digests nobody checks: seal, header, plan and records are read
 * as far as they go. A seal is read a second time with its own digest and root made right, so that
 * what lies behind those checks is reached. What is accepted must be written and accepted again.
 */
#include <stdlib.h>
#include <string.h>

#include <gpusnap/moe.h>
#include <gpusnap/plan.h>
#include <gpusnap/probe.h>
#include <gpusnap/seal.h>

#include "formats/base/bytes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void sign_seal(uint8_t bytes[GPUSNAP_SEAL_BYTES])
{
	gpusnap_digest header, leaves, parent, root, own;

	memcpy(header.bytes, bytes + 48, sizeof header.bytes);
	memcpy(leaves.bytes, bytes + 64, sizeof leaves.bytes);
	memcpy(parent.bytes, bytes + 96, sizeof parent.bytes);
	root = gpusnap_digest_root(
		gsn_le32(bytes + 8), header, leaves, gsn_le64(bytes + 112), parent);
	memcpy(bytes + 80, root.bytes, sizeof root.bytes);
	own = gpusnap_digest_of(bytes, GPUSNAP_SEAL_BYTES - 16);
	memcpy(bytes + GPUSNAP_SEAL_BYTES - 16, own.bytes, sizeof own.bytes);
}

static void try_seal(const uint8_t *data, size_t size, gpusnap_seal *ret_seal, int *ret_valid)
{
	uint8_t bytes[GPUSNAP_SEAL_BYTES], again[GPUSNAP_SEAL_BYTES];
	gpusnap_error err;

	*ret_valid = 0;
	if (size < sizeof bytes)
		return;
	memcpy(bytes, data + size - sizeof bytes, sizeof bytes);
	*ret_valid = !gpusnap_seal_decode(bytes, size, ret_seal, &err);
	sign_seal(bytes);
	if (gpusnap_seal_decode(bytes, size, ret_seal, &err))
		return;
	*ret_valid = 1;
	gpusnap_seal_encode(ret_seal, again);
	if (memcmp(bytes, again, sizeof bytes) != 0)
		abort();
}

/* Write and read again; the second text must be the first. */
static void check_model(gpusnap_json *json)
{
	gpusnap_moe_model *model, *back;
	gpusnap_json *again;
	gpusnap_error err;

	if (gpusnap_moe_model_decode(json, &model, &err))
		return;
	again = gpusnap_moe_model_encode(model);
	if (again && gpusnap_moe_model_decode(again, &back, &err))
		abort();
	if (again)
		gpusnap_moe_model_free(back);
	gpusnap_json_free(again);
	gpusnap_moe_model_free(model);
}

static void check_probe(gpusnap_json *json)
{
	gpusnap_probe *probe, *back;
	gpusnap_json *again;
	gpusnap_error err;

	if (gpusnap_probe_decode(json, &probe, &err))
		return;
	again = gpusnap_probe_encode(probe);
	if (again && gpusnap_probe_decode(again, &back, &err))
		abort();
	if (again)
		gpusnap_probe_free(back);
	gpusnap_json_free(again);
	gpusnap_probe_free(probe);
}

static void check_plan(const gpusnap_plan *plan, const gpusnap_header *header)
{
	char *text = gpusnap_plan_encode(plan);
	gpusnap_plan *back;
	gpusnap_error err;

	/* No memory, the only other reason, is not what is looked for here. */
	if (text && gpusnap_plan_decode(text, strlen(text), header, &back, &err))
		abort();
	if (text)
		gpusnap_plan_free(back);
	gpusnap_text_free(text);
	check_model(gpusnap_json_get(plan->records, "model"));
	check_probe(gpusnap_json_get(plan->records, "probe"));
}

static void try_plan(const gpusnap_header *header, const gpusnap_seal *seal)
{
	const char *text = gpusnap_header_metadata(header, GPUSNAP_PLAN_KEY);
	gpusnap_plan *plan;
	gpusnap_error err;

	if (!text || gpusnap_plan_decode(text, strlen(text), header, &plan, &err))
		return;
	check_plan(plan, header);
	if (seal && gpusnap_plan_match_seal(plan, header, seal, &err) == GPUSNAP_OK &&
		seal->header_bytes != gpusnap_header_data_offset(header))
		abort();
	gpusnap_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	gpusnap_header *header;
	gpusnap_seal seal;
	gpusnap_error err;
	uint64_t json_bytes;
	int sealed;

	try_seal(data, size, &seal, &sealed);
	if (gpusnap_header_measure(data, size, size, &json_bytes, &err))
		return 0;
	if (gpusnap_header_parse((const char *)data + 8, json_bytes, size, &header, &err))
		return 0;
	try_plan(header, sealed ? &seal : NULL);
	gpusnap_header_free(header);
	return 0;
}
