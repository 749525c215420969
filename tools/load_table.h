/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LOAD_TABLE_H
#define LOAD_TABLE_H
/* The plan of a load for people: totals, then a line a buffer. */
#include <gpusnap/json.h>

/* `plan` comes from gpusnap_load_describe(); answers the exit status. */
int load_table_print(gpusnap_json *plan);

#endif
