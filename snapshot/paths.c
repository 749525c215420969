/* SPDX-License-Identifier: Apache-2.0 */
/* Making paths absolute. */
#include "snapshot/paths.h"

#include <limits.h>
#include <unistd.h>

#include "formats/base/alloc.h"

char *gsn_absolute_path(const char *path)
{
	char here[PATH_MAX];

	/* Where the working directory has no path, the one given is the best there is. */
	if (*path == '/' || !getcwd(here, sizeof here))
		return gsn_strdup(path);
	return gsn_printf("%s/%s", here, path);
}
