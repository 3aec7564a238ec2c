#include "server/monitor/notices/notice_receiver.h"

#include "server/format/cat.h"
#include "server/format/storage/key.h"
#include "server/store/scalars.h"

namespace msprobe::server {

NoticeReceiver::NoticeReceiver(std::string_view kind, HttpUrl url)
    : kind_(kind), url_(std::move(url)), id_(Scalars::IdOf(Cat(kind_, " ", url_.Origin(), url_.target))) {}

std::string SummaryOf(const std::string& run, const v1::Alarm& alarm) {
  return Cat(run, ", ", RankName(alarm.rank()), ", step ", alarm.step(), ": ", alarm.series(), ": ", alarm.why());
}

}  // namespace msprobe::server
