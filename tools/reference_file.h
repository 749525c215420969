/* SPDX-License-Identifier: Apache-2.0 */
#ifndef REFERENCE_FILE_H
#define REFERENCE_FILE_H
/*
 * A safetensors file of values dumped from another engine: per module MODULE.in and MODULE.out
 * [tokens, hidden] F32, and where it has a router MODULE.router1 [tokens, k] F32 weights and
 * MODULE.router2 [tokens, k] I64 ids. "input_ids" [tokens] or [1, tokens] I64, where it is there,
 * are the tokens, which a router with a hash table needs.
 */
#include <stddef.h>

#include <gpusnap/dispatch.h>
#include <gpusnap/safetensors.h>

struct reference_file {
	uint8_t *bytes;
	gpusnap_header *header;
	int32_t *token_ids; /* [token_count]; NULL: the file has none */
	uint64_t token_count;
	size_t count;
	struct reference_module {
		char *name;
		uint64_t hidden;
		uint64_t top_k;		  /* 0 without a router */
		gpusnap_reference values; /* points into bytes, aligned copies where needed */
	} * modules;
};

gpusnap_status reference_file_open(
	const char *path, struct reference_file *ret_file, gpusnap_error *err);
void reference_file_close(struct reference_file *file);

#endif
