/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/moe_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/base/alloc.h"
#include "tests/support/file.h"
#include "tests/support/suite.h"

void moe_values_open(struct moe_values *values, const char *checkpoint)
{
	char path[512];
	uint64_t json_bytes;
	gpusnap_error err;

	(void)snprintf(path, sizeof path, "%s/checkpoints/%s/reference.safetensors",
		GPUSNAP_TEST_DATA, checkpoint);
	values->bytes = read_file(path, &values->length);
	ck_ok(gpusnap_header_measure(
		values->bytes, values->length, values->length, &json_bytes, &err));
	ck_ok(gpusnap_header_parse((const char *)values->bytes + 8, json_bytes, values->length,
		&values->header, &err));
}

void moe_values_close(struct moe_values *values)
{
	gpusnap_header_free(values->header);
	free(values->bytes);
}

/* A copy, because the file does not align its tensors. */
static void *copy_tensor(const struct moe_values *values, const char *name, uint64_t *ret_rows)
{
	const gpusnap_tensor *tensor = gpusnap_header_find(values->header, name);
	void *copy;

	ck_assert_msg(tensor != NULL, "no %s", name);
	copy = gsn_alloc(1, tensor->end - tensor->begin);
	ck_assert_ptr_nonnull(copy);
	memcpy(copy, values->bytes + gpusnap_header_data_offset(values->header) + tensor->begin,
		tensor->end - tensor->begin);
	*ret_rows = tensor->shape[0];
	return copy;
}

static void *copy_part(
	const struct moe_values *values, const char *module, const char *what, uint64_t *ret_rows)
{
	char name[128];

	(void)snprintf(name, sizeof name, "%s.%s", module, what);
	return copy_tensor(values, name, ret_rows);
}

static int32_t *copy_token_ids(const struct moe_values *values, uint64_t tokens)
{
	uint64_t rows;
	int64_t *wide = copy_tensor(values, "input_ids", &rows);
	int32_t *ids = gsn_alloc(tokens, sizeof *ids);

	for (uint64_t i = 0; i < tokens; i++)
		ids[i] = (int32_t)wide[i];
	gsn_free(wide);
	return ids;
}

void moe_module_read(struct moe_module *to, const struct moe_values *values, const char *module)
{
	uint64_t tokens, rows;

	to->in = copy_part(values, module, "in", &tokens);
	to->out = copy_part(values, module, "out", &rows);
	ck_assert_uint_eq(rows, tokens);
	to->weights = copy_part(values, module, "router1", &rows);
	to->ids = copy_part(values, module, "router2", &rows);
	to->token_ids = copy_token_ids(values, tokens);
	to->reference = (gpusnap_reference){
		.module = module,
		.tokens = (uint32_t)tokens,
		.in = to->in,
		.out = to->out,
		.router_weights = to->weights,
		.router_ids = to->ids,
		.token_ids = to->token_ids,
	};
}

void moe_module_free(struct moe_module *from)
{
	gsn_free(from->in);
	gsn_free(from->out);
	gsn_free(from->weights);
	gsn_free(from->ids);
	gsn_free(from->token_ids);
}
