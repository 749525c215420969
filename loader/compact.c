/* SPDX-License-Identifier: Apache-2.0 */
/* The compaction test and its option. */
#include "loader/compact.h"

#include <string.h>

#include "formats/base/fail.h"
#include "formats/base/text.h"

bool gsn_view_needs_compaction(const struct gsn_view *view)
{
	return !gsn_view_is_contiguous(view) || view->storage > gsn_view_target_bytes(view);
}

bool gsn_compact_applies(gpusnap_compact compact, const struct gsn_view *view)
{
	switch (compact) {
	case GPUSNAP_COMPACT_ALWAYS:
		return true;
	case GPUSNAP_COMPACT_NEVER:
		return !gsn_view_is_contiguous(view);
	default:
		return gsn_view_needs_compaction(view);
	}
}

gpusnap_status gpusnap_compact_parse(
	const char *name, gpusnap_compact *ret_compact, gpusnap_error *err)
{
	static const char *const names[] = {"auto", "always", "never"};
	char quoted[GSN_QUOTE_BYTES];

	for (uint32_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(name, names[i]) == 0) {
			*ret_compact = (gpusnap_compact)i;
			return GPUSNAP_OK;
		}
	return gsn_fail(err, GPUSNAP_E_INVALID, "compact '%s' is none of auto, always, never",
		gsn_quote(name, strlen(name), quoted));
}
