# Fails where agent/capture could include a framework's headers or Python's, or where a program of it loads their libraries.
#   cmake -DBINARY=a program that links agent/capture -DINCLUDED=the library's include directories -P needs_no_framework.cmake
if(INCLUDED MATCHES "(torch|mindspore)/include|include/python")
  message(FATAL_ERROR "agent/capture is compiled with ${CMAKE_MATCH_0} among its include directories: ${INCLUDED}")
endif()
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${BINARY} RESOLVED_DEPENDENCIES_VAR loaded UNRESOLVED_DEPENDENCIES_VAR missing)
foreach(library ${loaded} ${missing})
  if(library MATCHES "lib(torch|c10|mindspore|python)")
    message(FATAL_ERROR "${BINARY} loads ${library}")
  endif()
endforeach()
