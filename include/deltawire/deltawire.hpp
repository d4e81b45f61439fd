// All of deltawire for C++: what deltawire::deltawire links. Programs that want to compile faster include
// only the headers that they use. The optional component for MPI has connect_mpi.h.
//
// deltawire/deltawire.h is the interface for C.
#pragma once

#include "deltawire/channel.h"
#include "deltawire/codec.h"
#include "deltawire/codec_trial.h"
#include "deltawire/connect.h"
#include "deltawire/door.h"
#include "deltawire/elastic.h"
#include "deltawire/file.h"
#include "deltawire/frame.h"
#include "deltawire/huge_pages.h"
#include "deltawire/optimizer.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/part_backend.h"
#include "deltawire/patch.h"
#include "deltawire/patch_file.h"
#include "deltawire/planner.h"
#include "deltawire/policy.h"
#include "deltawire/rank_names.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/safetensors.h"
#include "deltawire/server.h"
#include "deltawire/session.h"
#include "deltawire/snapshot.h"
#include "deltawire/spec.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "deltawire/workers.h"
