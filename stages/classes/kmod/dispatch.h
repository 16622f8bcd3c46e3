/* SPDX-License-Identifier: GPL-2.0 */
/* The dispatcher: hands waiting requests on to the service, as many as it takes, in the order of the rule. */
#ifndef TARN_CLASSES_DISPATCH_H
#define TARN_CLASSES_DISPATCH_H

#include "classes.h"

/* How the class does, by the rule: what it is chosen by. */
struct share dispatch_share(const struct classes *classes, const struct client_class *class);

int dispatch_init(struct classes *classes);

/* Nothing is handed on any more when this returns. The hooks must be out. */
void dispatch_exit(struct classes *classes);

/*
 * Something has changed: room in the service, or a request. Wants bottom halves off, or a packet on its way out, which
 * turns them off and on again.
 */
void dispatch_kick(struct classes *classes);

/* Sees to it that the dispatcher wakes up in time for the next thing that happens by itself. Wants the lock. */
void dispatch_arm(struct classes *classes, u64 now);

/* Delivers packets that have waited, and frees the list. */
void packets_deliver(struct net *net, struct list_head *packets);

/* Frees packets that are lost, and ends connections that are to end with them; their reasons are counted already. */
void packets_drop(struct net *net, struct list_head *packets);

#endif
