/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_PATHS_H
#define GSN_PATHS_H
/* Paths that must outlive a change of the working directory. */

/* The path from the root, links and dots left alone; the caller frees it. NULL: no memory. */
char *gsn_absolute_path(const char *path);

#endif
