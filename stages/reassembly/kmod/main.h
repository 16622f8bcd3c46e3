/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TARN_REASSEMBLY_MAIN_H
#define TARN_REASSEMBLY_MAIN_H

#include "reassembly.h"

/* Where a namespace's own is. Written by netlink's commands, one at a time, and by the end of the namespace or the module. */
struct reassembly **place_in(const struct net *net);

#endif
