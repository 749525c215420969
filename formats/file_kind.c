/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that should have been a safetensors file and is not. */
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "formats/safetensors_header.h"

#define MAGIC(bytes) (bytes), sizeof(bytes) - 1

static const struct file_kind {
	const char *magic;
	size_t length;
	const char *is;
} file_kinds[] = {
	{MAGIC("version https://git-lfs"),
		"a Git-LFS pointer, not the file itself; fetch it with 'git lfs pull'"},
	{MAGIC("version "), "a Git-LFS pointer, not the file itself; fetch it with 'git lfs pull'"},
	{MAGIC("\x1f\x8b"), "gzip-compressed; decompress it first"},
	{MAGIC("\x28\xb5\x2f\xfd"), "zstd-compressed; decompress it first"},
	{MAGIC("PK\x03\x04"),
		"a zip archive, such as torch.save writes; convert it to safetensors"},
	{MAGIC("GGUF"), "a GGUF file; get the safetensors files of the model"},
	{MAGIC("\x89HDF\r\n"), "an HDF5 file; convert it to safetensors"},
	{MAGIC("\x93NUMPY"), "a NumPy array; convert it to safetensors"},
	{MAGIC("<?xml"), "an XML text; its download went wrong"},
	{MAGIC("{\""), "a JSON text; give the safetensors file, not its index or config"},
	{MAGIC("{\n"), "a JSON text; give the safetensors file, not its index or config"},
};

static bool begins(const uint8_t *prefix, size_t length, const char *text)
{
	return length >= strlen(text) && strncasecmp((const char *)prefix, text, strlen(text)) == 0;
}

const char *gsn_recognise_file(const uint8_t *prefix, size_t prefix_bytes)
{
	for (size_t i = 0; i < sizeof file_kinds / sizeof file_kinds[0]; i++)
		if (prefix_bytes >= file_kinds[i].length &&
			memcmp(prefix, file_kinds[i].magic, file_kinds[i].length) == 0)
			return file_kinds[i].is;
	if (begins(prefix, prefix_bytes, "<html") || begins(prefix, prefix_bytes, "<!doctype") ||
		begins(prefix, prefix_bytes, "<head"))
		return "an HTML page; its download went wrong";
	/* Pickle protocols 2 to 5 begin with PROTO and the number. */
	if (prefix_bytes >= 2 && prefix[0] == 0x80 && prefix[1] >= 2 && prefix[1] <= 5)
		return "a pickle, such as old torch.save wrote; convert it to safetensors";
	return NULL;
}
