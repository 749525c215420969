/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_HIP_ENTRIES_H
#define GSN_HIP_ENTRIES_H
/*
 * Entry points of the HIP runtime that not every version has. Those that all have are called by
 * their names, which hip_entries.c defines for the module.
 */

/* NULL when there is no runtime library, or none with that function. */
void *gsn_hip_entry(const char *name);

#endif
