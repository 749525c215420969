/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_SAFETENSORS_HEADER_H
#define GSN_SAFETENSORS_HEADER_H
/* The parsed header: built by safetensors_parse.c, checked and read by safetensors.c. */
#include <stddef.h>
#include <stdint.h>

#include <gpusnap/safetensors.h>

#define GSN_HEADER_METADATA_KEY "__metadata__"

enum { GSN_HEADER_LENGTH_BYTES = 8 };

struct gsn_metadata_entry {
	gpusnap_metadata pair;
	size_t key_length;
};

struct gpusnap_header {
	uint64_t data_offset;		/* 8 + length of the JSON */
	gpusnap_tensor *tensors;	/* sorted by begin, end, name */
	const gpusnap_tensor **by_name; /* the same, sorted by name */
	size_t tensor_count;
	struct gsn_metadata_entry *metadata; /* sorted by key */
	size_t metadata_count;
	uint64_t *dims; /* of all tensors, shape points into it */
	char *text;	/* names, keys and values, each with a final NUL */
};

/* Order of two names by bytes, a prefix first. */
int gsn_name_compare(const char *a, size_t a_length, const char *b, size_t b_length);

/* Fill by_name, an array of `count` pointers. E_FORMAT when a name repeats. */
gpusnap_status gsn_tensors_by_name(const gpusnap_tensor *tensors, size_t count,
	const gpusnap_tensor **by_name, gpusnap_error *err);

/* Does the byte range have the size that dtype and shape say? Messages do not name the tensor. */
gpusnap_status gsn_tensor_check_size(const gpusnap_tensor *tensor, gpusnap_error *err);

/* What the file that begins so really is ("a Git-LFS pointer; ..."), or NULL. */
const char *gsn_recognise_file(const uint8_t *prefix, size_t prefix_bytes);

#endif
