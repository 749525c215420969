/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the input is JSON text. What is accepted must survive a dump and a second parse. */
#include <stdlib.h>
#include <string.h>

#include <gpusnap/json.h>

#ifdef NDEBUG
#undef NDEBUG
#endif
#include <assert.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	gpusnap_json *value = NULL;
	gpusnap_json *again = NULL;
	gpusnap_error err;
	char *first, *second;

	if (gpusnap_json_parse((const char *)data, size, "input", &value, &err)) {
		assert(err.status == GPUSNAP_E_FORMAT && err.message[0]);
		return 0;
	}
	first = gpusnap_json_dump(value);
	assert(first);
	assert(gpusnap_json_parse(first, strlen(first), "dump", &again, &err) == GPUSNAP_OK);
	second = gpusnap_json_dump(again);
	assert(second && strcmp(first, second) == 0);
	gpusnap_text_free(first);
	gpusnap_text_free(second);
	gpusnap_json_free(value);
	gpusnap_json_free(again);
	return 0;
}
