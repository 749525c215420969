/* SPDX-License-Identifier: Apache-2.0 */
#include "loader/name_list.h"

#include <stdio.h>
#include <string.h>

#include "formats/base/text.h"

static const char more[] = ", ...";

void gsn_name_list_add(struct gsn_name_list *list, const char *name)
{
	size_t room = sizeof list->text - list->used;
	char quoted[GSN_QUOTE_BYTES];
	const char *shown = gsn_quote(name, strlen(name), quoted);

	if (!list->full && strlen(shown) + sizeof more + 2 <= room) {
		list->used += (size_t)snprintf(
			list->text + list->used, room, "%s%s", list->count ? ", " : "", shown);
	} else if (!list->full) {
		(void)snprintf(list->text + list->used, room, "%s", more);
		list->full = true;
	}
	list->count++;
}
