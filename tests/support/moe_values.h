/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_TEST_MOE_VALUES_H
#define GPUSNAP_TEST_MOE_VALUES_H
/*
 * What the transformers library computed for the small checkpoints
 * (tests/data/checkpoints/README.md). Functions assert; nothing to check.
 */
#include <gpusnap/dispatch.h>
#include <gpusnap/safetensors.h>

struct moe_values {
	uint8_t *bytes;
	size_t length;
	gpusnap_header *header;
};

struct moe_module {
	gpusnap_reference reference; /* of the arrays below */
	float *in, *out, *weights;
	int64_t *ids;
	int32_t *token_ids;
};

void moe_values_open(struct moe_values *values, const char *checkpoint);
void moe_values_close(struct moe_values *values);
/* `module` is borrowed. */
void moe_module_read(struct moe_module *to, const struct moe_values *values, const char *module);
void moe_module_free(struct moe_module *from);

#endif
