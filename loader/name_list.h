/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GSN_NAME_LIST_H
#define GSN_NAME_LIST_H
/* Names for a message: as many as fit, and how many there are. */
#include <stdbool.h>
#include <stddef.h>

struct gsn_name_list {
	size_t count;
	size_t used; /* of `text` */
	bool full;   /* some are only counted; `text` ends in ", ..." */
	char text[400];
};

void gsn_name_list_add(struct gsn_name_list *list, const char *name); /* to a zeroed one */

#endif
