/* What the shared library shows: all else in it is hidden. For C and C++. */
#ifndef DELTAWIRE_EXPORT_H
#define DELTAWIRE_EXPORT_H

#define DELTAWIRE_API __attribute__((visibility("default")))
/* For what is nested in a class that it shows. */
#define DELTAWIRE_HIDDEN __attribute__((visibility("hidden")))

#endif
