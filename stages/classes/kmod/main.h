/* SPDX-License-Identifier: GPL-2.0 */
/* Configurations of namespaces: their beginning and end. */
#ifndef TARN_CLASSES_MAIN_H
#define TARN_CLASSES_MAIN_H

#include "classes.h"

/* What runs in this namespace, or NULL. For netlink, whose commands come one at a time. */
struct classes *classes_of(struct net *net);

/* Room for a configuration of so many classes. */
struct classes *classes_alloc(struct net *net, u32 count);
void classes_free(struct classes *classes);

/* From here on packets see it. Nothing runs there yet. */
int classes_start(struct classes *classes);

/* Ends and frees what runs in this namespace. What waits goes on to the service. */
void classes_stop(struct net *net);

#endif
