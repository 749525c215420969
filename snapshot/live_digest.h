/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_LIVE_DIGEST_H
#define GSN_LIVE_DIGEST_H
/* The kept bytes of a registry as they are now: their ranges and their leaf digests. */
#include "snapshot/ranges.h"
#include "snapshot/segment.h"

struct gsn_live {
	struct gsn_range *ranges;     /* all of the registry's; names live here */
	struct gsn_segment *segments; /* kept ones in registry order; file_offset 0 */
	size_t count;
	gpusnap_digest *leaves;
	uint64_t leaf_count;
};
#define GSN_LIVE_INIT                                                                              \
	{                                                                                          \
		NULL                                                                               \
	}

/* E_STATE unless every region that keeps bytes is resident. */
gpusnap_status gsn_live_check(const struct gsn_range *ranges, size_t count, gpusnap_error *err);
/* Check, then digest on the device. Call inside a job. Released by the caller, also on failure. */
gpusnap_status gsn_live_digest(
	struct gsn_live *live, gpusnap_registry *registry, gpusnap_error *err);
void gsn_live_release(struct gsn_live *live);

#endif
