/* SPDX-License-Identifier: Apache-2.0 */
/* What may be a name: names travel as JSON strings and as tensor names of the snapshot file. */
#include <string.h>

#include <gpusnap/plan.h>

#include "formats/base/fail.h"
#include "formats/base/utf8.h"
#include "snapshot/registry_state.h"

gpusnap_status gsn_name_check(const char *what, const char *name, gpusnap_error *err)
{
	if (!name || !*name)
		return gsn_fail(err, GPUSNAP_E_INVALID, "a %s needs a name", what);
	if (strlen(name) > GPUSNAP_NAME_MAX)
		return gsn_fail(err, GPUSNAP_E_INVALID,
			"the name of a %s has %zu bytes, at most %u: '%.40s...'", what,
			strlen(name), GPUSNAP_NAME_MAX, name);
	if (!gsn_utf8_valid(name, strlen(name)))
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
