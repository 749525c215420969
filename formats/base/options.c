/* SPDX-License-Identifier: Apache-2.0 */
#include "formats/base/options.h"

#include <stdint.h>
#include <string.h>

#include "formats/base/fail.h"

gpusnap_status gsn_options_copy(
	void *known, size_t known_size, const void *caller, const char *what, gpusnap_error *err)
{
	const uint8_t *bytes = caller;
	size_t caller_size;

	memset(known, 0, known_size);
	if (!caller)
		return GPUSNAP_OK;
	memcpy(&caller_size, caller, sizeof caller_size);
	if (caller_size < sizeof caller_size)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s: struct_size is %zu; initialise it with the _INIT macro", what,
			caller_size);
	for (size_t i = known_size; i < caller_size; i++)
		if (bytes[i])
			return gsn_fail(err, GPUSNAP_E_UNSUPPORTED,
				"%s: byte %zu is set, this build knows %zu bytes of options", what,
				i, known_size);
	memcpy(known, caller, caller_size < known_size ? caller_size : known_size);
	return GPUSNAP_OK;
}
