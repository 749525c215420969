/* SPDX-License-Identifier: Apache-2.0 */
/* What may be a name: names travel as JSON strings and as tensor names of the snapshot file. */
#include <stdbool.h>
#include <string.h>

#include <gpusnap/plan.h>

#include "formats/base/fail.h"
#include "snapshot/registry_state.h"

/* Bytes of the UTF-8 sequence at `p` (RFC 3629), 0 when it is none. */
static int sequence_length(const unsigned char *p)
{
	unsigned low = 0x80;
	unsigned high = 0xbf;
	int length;

	if (p[0] < 0x80)
		return 1;
	if (p[0] < 0xc2 || p[0] > 0xf4)
		return 0;
	length = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
	/* Overlong forms, surrogates and what lies past U+10FFFF show in the second byte. */
	if (p[0] == 0xe0)
		low = 0xa0;
	if (p[0] == 0xed)
		high = 0x9f;
	if (p[0] == 0xf0)
		low = 0x90;
	if (p[0] == 0xf4)
		high = 0x8f;
	if (p[1] < low || p[1] > high)
		return 0;
	for (int i = 2; i < length; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	return length;
}

static bool is_utf8(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;

	while (*p) {
		int length = sequence_length(p);

		if (length == 0)
			return false;
		p += length;
	}
	return true;
}

gpusnap_status gsn_name_check(const char *what, const char *name, gpusnap_error *err)
{
	if (!name || !*name)
		return gsn_fail(err, GPUSNAP_E_INVALID, "a %s needs a name", what);
	if (strlen(name) > GPUSNAP_NAME_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"the name of a %s has %zu bytes, at most %u: '%.40s...'", what,
			strlen(name), GPUSNAP_NAME_MAX, name);
	if (!is_utf8(name))
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"the name of a %s is not UTF-8: it cannot be written to a snapshot", what);
	if (strncmp(name, GPUSNAP_RESERVED_PREFIX, strlen(GPUSNAP_RESERVED_PREFIX)) == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s '%s': names that begin with '%s' are reserved", what, name,
			GPUSNAP_RESERVED_PREFIX);
	if (strcmp(name, "__metadata__") == 0)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"%s '%s': safetensors keeps that name for itself", what, name);
	return GPUSNAP_OK;
}
