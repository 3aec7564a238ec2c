# Run at install: copies the shared libraries of ${server_binary} into ${server_lib}, each under the name it is loaded by.
file(
  GET_RUNTIME_DEPENDENCIES
  EXECUTABLES "${server_binary}"
  RESOLVED_DEPENDENCIES_VAR libraries
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|anl|gcc_s|stdc\\+\\+)\\.so" "^lib[at]san\\.so" "^libubsan\\.so")
if(missing)
  message(FATAL_ERROR "${server_binary} needs ${missing}, found nowhere on this machine")
endif()
set(server_lib "$ENV{DESTDIR}${server_lib}")
file(MAKE_DIRECTORY "${server_lib}")
foreach(library ${libraries})
  file(REAL_PATH "${library}" file)
  cmake_path(GET library FILENAME name)
  file(COPY_FILE "${file}" "${server_lib}/${name}" ONLY_IF_DIFFERENT)
endforeach()
