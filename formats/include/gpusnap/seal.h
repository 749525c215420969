/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GPUSNAP_SEAL_H
#define GPUSNAP_SEAL_H
/*
 * The seal: the last 4096 bytes of a snapshot, read first. It binds header, leaves, length and
 * parent together under one root, and carries its own digest. Layout: formats/gsnap.md.
 */
#include <stdint.h>

#include <gpusnap/digest.h>
#include <gpusnap/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GPUSNAP_SEAL_BYTES     4096u
#define GPUSNAP_FORMAT_VERSION 1u
#define GPUSNAP_UUID_BYTES     16u

typedef struct gpusnap_seal {
	uint32_t version;	    /* GPUSNAP_FORMAT_VERSION */
	uint64_t required_features; /* a reader that does not know a set bit refuses */
	uint64_t optional_features; /* unknown bits are ignored */
	uint8_t uuid[GPUSNAP_UUID_BYTES];
	gpusnap_digest header; /* of the file's first bytes up to the data section */
	gpusnap_digest leaves; /* of the bytes of tensor gpusnap.leaves */
	gpusnap_digest root;
	gpusnap_digest parent_root; /* zero: a full snapshot; else GPUSNAP_FEATURE_DELTA is set */
	uint64_t file_bytes;
	uint64_t header_bytes; /* offset of the data section */
	uint64_t leaf_count;
} gpusnap_seal;

/* The file holds what differs from the snapshot that parent_root names. */
#define GPUSNAP_FEATURE_DELTA UINT64_C(1)

/* Required and optional features that this build knows. */
#define GPUSNAP_REQUIRED_FEATURES GPUSNAP_FEATURE_DELTA
#define GPUSNAP_OPTIONAL_FEATURES UINT64_C(0)

/** Fill seal->root from its other fields, then write 4096 bytes. */
GPUSNAP_API void gpusnap_seal_encode(gpusnap_seal *seal, uint8_t bytes[GPUSNAP_SEAL_BYTES]);
/**
 * Read and check: magic, own digest, version, features, root, file length. E_FORMAT: no snapshot
 * or an incomplete one; E_UNSUPPORTED: a newer version or required feature; E_CORRUPT: damaged.
 * @param bytes       the last 4096 bytes of the file.
 * @param file_bytes  the file's length.
 */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_seal_decode(
	const uint8_t bytes[GPUSNAP_SEAL_BYTES], uint64_t file_bytes, gpusnap_seal *ret_seal,
	gpusnap_error *err);
/** 36-character text form of a UUID (RFC 9562), with final NUL. Returns `text`. */
GPUSNAP_API char *gpusnap_uuid_format(const uint8_t uuid[GPUSNAP_UUID_BYTES], char text[37]);
/** Parse that form, either case; E_FORMAT otherwise. */
GPUSNAP_API GPUSNAP_NODISCARD gpusnap_status gpusnap_uuid_parse(
	const char *text, uint8_t ret_uuid[GPUSNAP_UUID_BYTES], gpusnap_error *err);

#ifdef __cplusplus
}
#endif
#endif
