/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_OPTIONS_H
#define GSN_OPTIONS_H
/*
 * Options structs begin with `size_t struct_size`; zero in a field means its default. A caller
 * built against a newer header is accepted as long as the bytes we do not know are zero.
 */
#include <stddef.h>

#include <gpusnap/status.h>

/* Copy caller's options over `known` (known_size bytes, zeroed first). NULL means all defaults. */
gpusnap_status gsn_options_copy(
	void *known, size_t known_size, const void *caller, const char *what, gpusnap_error *err);

#endif
